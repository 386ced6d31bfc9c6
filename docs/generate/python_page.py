"""The page of the Python interface: what the public packages export, by their docstrings."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from tables import escaped, joined, table

__all__ = ["python_page"]

MODULES: Final = {
    "streamcal.transform": "Follow the published maps and apply them to live scores.",
    "streamcal.transform.kafka_source": "Maps from the maps topic.",
    "streamcal.transform.classes": "Scores of several classes, offline.",
    "streamcal.transform.keys": "Keys in files: whose signatures count.",
    "streamcal.transform.metrics": "Prometheus metrics of a transformer.",
    "streamcal.maps.document": "Read, verify and write map documents.",
    "streamcal.maps.families": "The maps themselves.",
    "streamcal.maps.signing": "Sign documents, and verify them.",
    "streamcal.sklearn": "Calibrated classifiers for scikit-learn; the extra `sklearn`.",
    "streamcal.river": "Calibration metrics for river.",
    "streamcal.errors": "What commands and functions raise for a person to mend.",
}
"""Public modules; whatever else can be imported may change without notice."""


def python_page() -> str:
    """Markdown of all public names."""
    parts = ["# Python\n", "`help(name)` has parameters, errors, units and examples of each.\n"]
    for name, says in MODULES.items():
        module = importlib.import_module(name)
        rows = [_row(public, getattr(module, public)) for public in module.__all__]
        parts += [f"## `{name}`\n", says + "\n", table(("name", "what it is"), [row for row in rows if row[1]])]
    return "\n".join(parts)


def _row(name: str, value: Any) -> tuple[str, str]:
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return f"`{name}`", f"Constant, {value!r}." if isinstance(value, int | float | str) else ""
    says = joined((inspect.getdoc(value) or "").split("\n\n")[0])
    return f"`{name}`", escaped(says)
