"""The result of a replay as `report.json` and a self-contained `report.html`.

Others read `report.json`: keys are added and never changed, absent figures are left out (never null, NaN
or 0), and the schema beside this module says the same in JSON Schema. The page is drawn from the same
document, so the two cannot disagree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from streamcal.errors import StreamcalError
from streamcal.serve.figure_row import figure_dict
from streamcal.serve.metrics import MODEL_COUNTERS, TOTAL_COUNTERS
from streamcal.serve.report_page import render_page

__all__ = [
    "SCHEMA_VERSION",
    "ModelReport",
    "ReplayResult",
    "figure_dict",
    "report_document",
    "report_schema",
    "write_report",
]

SCHEMA_VERSION: Final = 1
COUNTERS: Final = frozenset((*MODEL_COUNTERS, *TOTAL_COUNTERS))


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model, in report form.

    Attributes
    ----------
    segments : mapping
        Segment key (``all``, ``country=GB,device=ios``) to ``{"windows": {name: {"raw": {}, "served": {}}},
        "periods": [{"from_ms", "to_ms", "raw", "served"}]}``, figures as `figure_dict` gives them. The window
        ``all`` is everything read.
    history : sequence of mapping
        ``{"at_ms", "window", "raw", "served"}`` of the segment ``all``, one per hour of event time.
    alarms : sequence of mapping
        ``{"at_ms", "ended_at_ms", "cut", "segment", "fault", "evidence"}``.
    changes : sequence of mapping
        ``{"at_ms", "trigger"}``: what the change triggers told of the whole model.
    maps : sequence of mapping
        ``{"version", "family", "at_ms", "promoted", "reason", "document"}``; refusals too, which have no document
        and of which several in a row may share an entry (``attempts``, ``until_ms``).
    """

    segments: Mapping[str, Mapping[str, Any]]
    history: Sequence[Mapping[str, Any]] = ()
    alarms: Sequence[Mapping[str, Any]] = ()
    maps: Sequence[Mapping[str, Any]] = ()
    changes: Sequence[Mapping[str, Any]] = ()
    histogram: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Everything a replay found.

    Attributes
    ----------
    inputs : sequence of (str, str)
        Path and SHA-256 (hex) of each file read.
    from_ms, to_ms : int or None
        First and last event time; None when nothing was read.
    counters : mapping
        Counters by report key; one left out is 0.
    rejected : mapping
        Reason to count.
    """

    product_version: str
    config_hash: str
    inputs: Sequence[tuple[str, str]]
    from_ms: int | None
    to_ms: int | None
    counters: Mapping[str, int]
    rejected: Mapping[str, int]
    pending: int
    models: Mapping[str, ModelReport]


def report_document(result: ReplayResult) -> dict[str, Any]:
    """`report.json` as plain dicts and lists.

    Raises
    ------
    ValueError
        A counter that the report does not know.
    """
    unknown = result.counters.keys() - COUNTERS
    if unknown:
        raise ValueError(f"counters the report does not know: {', '.join(sorted(unknown))}")
    counters: dict[str, Any] = {name: result.counters.get(name, 0) for name in (*MODEL_COUNTERS, *TOTAL_COUNTERS)}
    return {
        "schema_version": SCHEMA_VERSION,
        "product_version": result.product_version,
        "config_hash": result.config_hash,
        "inputs": [{"path": path, "sha256": digest} for path, digest in result.inputs],
        "from_ms": result.from_ms,
        "to_ms": result.to_ms,
        "counters": {**counters, "rejected": dict(result.rejected)},
        "pending": result.pending,
        "models": {name: _model(model) for name, model in result.models.items()},
    }


def _model(model: ModelReport) -> dict[str, Any]:
    return {
        "segments": {
            key: {"windows": dict(segment["windows"]), "periods": list(segment.get("periods", ()))}
            for key, segment in model.segments.items()
        },
        "history": list(model.history),
        "alarms": list(model.alarms),
        "changes": list(model.changes),
        "maps": list(model.maps),
    } | ({"histogram": {kind: list(rows) for kind, rows in model.histogram.items()}} if model.histogram else {})


def report_schema() -> dict[str, Any]:
    """JSON Schema of `report.json`."""
    text = resources.files("streamcal.serve").joinpath("report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def write_report(result: ReplayResult, directory: Path) -> tuple[Path, Path]:
    """Write `report.json` and `report.html` into `directory`, made if it is not there.

    Each file appears whole or not at all.

    Returns
    -------
    tuple of Path
        The JSON file and the page.

    Raises
    ------
    StreamcalError
        The directory cannot be made or written to.
    ValueError
        A figure is infinite or NaN, or a name is unknown.
    """
    document = report_document(result)
    text = json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"
    page = render_page(document)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _write(directory / "report.json", text), _write(directory / "report.html", page)
    except OSError as error:
        what = f"cannot write the report: {error.strerror or error}"
        hint = "give --report a directory that can be made and written to"
        raise StreamcalError(what, where=str(directory), hint=hint) from error


def _write(path: Path, text: str) -> Path:
    part = path.with_name(path.name + ".part")
    try:
        # Names of models and segments may hold lone surrogates, which UTF-8 cannot; a page is not worth failing for.
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(part, path)  # noqa: PTH105 - the same as Path.replace, and says that it overwrites
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return path
