"""Grafana panels and variables, as little JSON as says what is meant.

Every panel carries a unit, a description and thresholds; a test holds that, so the constructors ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["DATASOURCE", "Panel", "Target", "Thresholds", "dashboard", "label_variable", "place", "row"]

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA: Final = 39  # Grafana 10.3 and newer; newer ones migrate it by themselves
_WIDTH: Final = 24  # columns of Grafana's grid

Thresholds = Sequence[tuple[float | None, str]]
"""(from, colour), the first from None; one entry where nothing is good or bad."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel; `legend` in Grafana's ``{{label}}`` form."""

    expr: str
    legend: str = ""
    table: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel without its place.

    Attributes
    ----------
    kind : str
        Grafana's panel type: ``stat``, ``timeseries``, ``table``, ``state-timeline``, ``bargauge``.
    options : mapping
        Merged into the panel's options.
    overrides : sequence
        Field overrides as Grafana writes them.
    custom : mapping
        Custom field options of its kind (line style and the like).
    transformations : sequence
        As Grafana writes them.
    """

    title: str
    kind: str
    targets: Sequence[Target]
    says: str
    unit: str
    thresholds: Thresholds = ((None, "green"),)
    width: int = 8
    height: int = 8
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    mappings: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[Mapping[str, Any]] = ()
    custom: Mapping[str, Any] = field(default_factory=dict)
    transformations: Sequence[Mapping[str, Any]] = ()

    def built(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel as JSON at a place of the grid."""
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": colour} for value, colour in self.thresholds],
            },
            "color": {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"},
            "mappings": list(self.mappings),
            "custom": dict(self.custom) or _CUSTOM.get(self.kind, {}),
        }
        optional = {"decimals": self.decimals, "min": self.low, "max": self.high}
        defaults |= {name: value for name, value in optional.items() if value is not None}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.says,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [_target(chr(ord("A") + i), target) for i, target in enumerate(self.targets)],
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": {**_OPTIONS.get(self.kind, {}), **self.options},
            "transformations": list(self.transformations),
        }


_CUSTOM: Final[Mapping[str, Mapping[str, Any]]] = {
    # A figure that is absent leaves a gap; no line is drawn over what is not known.
    "timeseries": {"lineWidth": 1, "fillOpacity": 0, "spanNulls": False, "thresholdsStyle": {"mode": "line"}},
    "table": {"align": "auto", "filterable": True},
    "state-timeline": {"fillOpacity": 80, "lineWidth": 0},
}

_LEGEND: Final = {"displayMode": "list", "placement": "bottom", "showLegend": True}

_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "bargauge": {
        "orientation": "horizontal",
        "displayMode": "gradient",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "state-timeline": {"legend": _LEGEND, "mergeValues": True, "showValue": "auto", "rowHeight": 0.8},
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _target(ref: str, target: Target) -> dict[str, Any]:
    made: dict[str, Any] = {"refId": ref, "datasource": DATASOURCE, "expr": target.expr, "editorMode": "code"}
    if target.table:
        return {**made, "format": "table", "instant": True, "range": False}
    return {**made, "legendFormat": target.legend or "__auto", "instant": False, "range": True}


def row(title: str, *panels: Panel, collapsed: bool = False) -> tuple[str, bool, tuple[Panel, ...]]:
    """A titled row of panels; a collapsed one asks nothing until it is opened."""
    return title, collapsed, panels


def place(rows: Sequence[tuple[str, bool, tuple[Panel, ...]]]) -> list[dict[str, Any]]:
    """Panels from left to right and top to bottom, as Grafana's grid wants them."""
    placed: list[dict[str, Any]] = []
    number, y = 1, 0
    for title, collapsed, panels in rows:
        head: dict[str, Any] = {"id": number, "type": "row", "title": title, "collapsed": collapsed, "panels": []}
        placed.append({**head, "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1}})
        number, y, x, tallest = number + 1, y + 1, 0, 0
        inside: list[dict[str, Any]] = []
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y, tallest = 0, y + tallest, 0
            inside.append(panel.built(number, x, y))
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest
        if collapsed:
            placed[-1]["panels"] = inside
        else:
            placed.extend(inside)
    return placed


def label_variable(name: str, says: str, query: str) -> dict[str, Any]:
    """A drop-down of label values."""
    return {
        "name": name,
        "label": name,
        "description": says,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": query, "refId": f"variable-{name}"},
        "definition": query,
        "refresh": 2,  # with the time range: segments come and go
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }


def dashboard(
    uid: str,
    title: str,
    says: str,
    variables: Sequence[Mapping[str, Any]],
    rows: Sequence[tuple[str, bool, tuple[Panel, ...]]],
) -> dict[str, Any]:
    """A whole dashboard; the data source is its first variable."""
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    links = {"type": "dashboards", "tags": ["streamcal"], "title": "streamcal", "includeVars": True, "keepTime": True}
    return {
        "uid": uid,
        "title": title,
        "description": says,
        "tags": ["streamcal"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one cross hair over all panels
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "links": [{**links, "asDropdown": False, "icon": "external link", "targetBlank": False, "url": ""}],
        "templating": {"list": [source, *variables]},
        "annotations": {"list": []},
        "panels": place(rows),
    }
