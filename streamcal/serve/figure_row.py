"""Figures of one series in report form: what the report, the API and the page all show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamcal.serve.metrics import FIGURES
from streamcal.snapshot import Figures

__all__ = ["figure_dict"]

_COUNTS: Final = frozenset(("n", "positives"))


def figure_dict(figures: Figures, i: int, bins: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Row `i` of figure arrays in report form.

    Parameters
    ----------
    figures : mapping of str to float64 array
        NaN is absent and left out; `n` and `positives` become integers.
    i : int
    bins : sequence of mapping, optional
        Reliability table, taken over under ``bins``.

    Raises
    ------
    ValueError
        A figure that the report does not know.

    >>> import numpy as np
    >>> figure_dict({"n": np.array([3.0]), "ece": np.array([0.25]), "platt_slope": np.array([np.nan])}, 0)
    {'n': 3, 'ece': 0.25}
    """
    unknown = figures.keys() - FIGURES.keys()
    if unknown:
        raise ValueError(f"figures the report does not know: {', '.join(sorted(unknown))}")
    row: dict[str, Any] = {}
    for name in FIGURES:
        value = float(figures[name][i]) if name in figures else float("nan")
        if value == value:  # noqa: PLR0124 - false for NaN
            row[name] = int(value) if name in _COUNTS else value
    if bins is not None:
        row["bins"] = [dict(entry) for entry in bins]
    return row
