"""Early signs on /metrics, read back with the official parser, and on the page that describes them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from streamcal.serve.early import EARLY, LABELS, SHIFT, early_families
from streamcal.serve.exposition import exposition
from streamcal.serve.metrics import FIGURES
from streamcal.snapshot import EarlyEstimate

_PAGE = Path(__file__).parents[2] / "docs" / "figures.md"


def read_back(snapshot):
    text = exposition(early_families(snapshot)).decode()
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_sign_reads_back_under_its_name(model, snapshot):
    assert read_back(snapshot(model("m"))) == {
        ("streamcal_label_coverage_ratio", "model=m"): 0.75,
        ("streamcal_label_delay_seconds", "model=m", "quantile=0.5"): 1.5,
        ("streamcal_label_delay_seconds", "model=m", "quantile=0.99"): 3600.25,
        ("streamcal_unmatched_ratio", "hi=0.1", "lo=0.0", "model=m"): 0.2,
        ("streamcal_unmatched_ratio", "hi=1.0", "lo=0.9", "model=m"): 0.0,
        ("streamcal_early_predicted_to_observed_ratio", "model=m"): 1.2625,
        ("streamcal_early_predicted_to_observed_ratio_stderr", "model=m"): 0.2,
        ("streamcal_early_positive_outcomes", "model=m"): 40,
        ("streamcal_early_expected_positives", "model=m"): 50.5,
        ("streamcal_early_predictions", "model=m"): 1000,
        ("streamcal_score_shift", "cut=all", "model=m", "segment=all", "window=1h"): 0.125,
        ("streamcal_score_shift_noise_floor", "cut=all", "model=m", "segment=all", "window=1h"): 0.0625,
    }


def test_what_is_not_known_leaves_no_sample(model, snapshot):
    calm = model("m", labels=None, score_shift={}, early=EarlyEstimate(10, 0, 3.5, None, None))
    assert read_back(snapshot(calm)) == {
        ("streamcal_early_positive_outcomes", "model=m"): 0,
        ("streamcal_early_expected_positives", "model=m"): 3.5,
        ("streamcal_early_predictions", "model=m"): 10,
    }
    assert read_back(snapshot(replace(calm, early=None))) == {}


def test_no_sign_bears_the_name_of_a_figure():
    names = {*LABELS, *EARLY, *SHIFT}
    assert len(names) == len(LABELS) + len(EARLY) + len(SHIFT)
    assert names.isdisjoint(named.metric for named in FIGURES.values())


def test_the_page_describes_every_sign_and_no_other():
    page, _, _ = _PAGE.read_text(encoding="utf-8").partition("<!-- below")
    described = set(re.findall(r"`(streamcal_(?:early|label|unmatched|score_shift)\w*)[`{ ]", page))
    assert described == {*LABELS, *EARLY, *SHIFT}
