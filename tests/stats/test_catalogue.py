"""The catalogue covers every figure, and the documentation is what it says."""

from __future__ import annotations

import re
from pathlib import Path

from streamcal.serve.metrics import FIGURES as METRICS
from streamcal.serve.report import report_schema
from streamcal.stats.catalogue import CATALOGUE, markdown
from streamcal.stats.figures import FIGURES

_PAGE = Path(__file__).parents[2] / "docs" / "figures.md"
_ELSEWHERE = {"phi", "smooth_ece"}
"""Figures that `figures` is given, or that are computed on demand."""


def test_every_figure_is_described_once_and_in_the_order_of_the_report() -> None:
    assert [key for key in CATALOGUE if key not in _ELSEWHERE] == list(FIGURES)
    assert CATALOGUE.keys() - FIGURES.keys() == _ELSEWHERE
    assert all(key == spec.key for key, spec in CATALOGUE.items())


def test_metrics_and_report_know_the_figures_of_the_catalogue() -> None:
    assert list(METRICS) == list(CATALOGUE)
    properties = report_schema()["$defs"]["figures"]["properties"]
    assert list(properties) == [*CATALOGUE, "bins"]


def test_no_description_is_empty_and_no_metric_shared() -> None:
    for spec in CATALOGUE.values():
        texts = (spec.says, spec.formula, spec.source, spec.absent, spec.reading)
        assert all(text.endswith(".") for text in texts), spec.key
        assert "`" not in spec.says
    assert len({spec.metric for spec in CATALOGUE.values()}) == len(CATALOGUE)


def test_the_page_ends_in_what_the_catalogue_says() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    written, marker, generated = page.partition("<!-- below: python -m streamcal.stats.catalogue -->\n\n")
    assert marker
    assert generated == markdown(), "replace what follows the marker by the output of that command"
    assert set(re.findall(r"^### `(\w+)`$", generated, re.MULTILINE)) == set(CATALOGUE)
    assert "bins" in written
