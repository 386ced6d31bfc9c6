"""Pairs against a recount in plain dictionaries."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from streamcal.inspect.pairing import decode, pair
from streamcal.inspect.sample import Sample, SampledRecord
from streamcal.runtime.config import Config
from streamcal.runtime.wiring import engine_settings

T = 1_700_000_000_000


def sample(events: list[dict[str, Any]], *, complete: bool = True) -> Sample:
    records = [SampledRecord(json.dumps(e).encode(), partition=e.get("part", 0)) for e in events]
    return Sample(records, 3, complete)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_delays_and_places_are_recounted(seed: int) -> None:
    rng = random.Random(seed)
    predictions = [
        {"id": f"i{rng.randrange(80)}", "ts": T + rng.randrange(100_000), "score": 0.5, "part": rng.randrange(3)}
        for _ in range(100)
    ]
    outcomes = [
        {"id": f"i{rng.randrange(120)}", "ts": T + rng.randrange(200_000), "label": rng.randrange(2), "part": 1}
        for _ in range(90)
    ]
    found = pair(decode(engine_settings(Config()), sample(predictions), sample(outcomes)), predictions_complete=True)
    first: dict[str, dict[str, Any]] = {}
    for prediction in predictions:
        first.setdefault(prediction["id"], prediction)
    hits = [(first[o["id"]], o) for o in outcomes if o["id"] in first]
    assert found.delays_ms.tolist() == sorted(o["ts"] - p["ts"] for p, o in hits)
    assert found.elsewhere == sum(p["part"] != 1 for p, _ in hits)
    assert sorted(found.label.tolist()) == sorted(o["label"] for _, o in hits)


def test_quantiles_cover_the_share_they_name() -> None:
    predictions = [{"id": str(i), "ts": T, "score": 0.5} for i in range(1000)]
    outcomes = [{"id": str(i), "ts": T + i, "label": 1} for i in range(1000)]
    found = pair(decode(engine_settings(Config()), sample(predictions), sample(outcomes)), predictions_complete=True)
    for share in (0.5, 0.9, 0.999, 1.0):
        assert (found.delays_ms <= found.delay_quantile_ms(share)).mean() >= share
    assert found.delay_quantile_ms(0.5) == 499


def test_outcomes_of_predictions_before_the_sample_are_not_judged() -> None:
    # Every outcome comes 100 s after its prediction; the sample of predictions begins at 500 s.
    predictions = [{"id": str(i), "ts": T + i * 1000, "score": 0.5} for i in range(500, 1000)]
    outcomes = [{"id": str(i), "ts": T + (i + 100) * 1000, "label": 1} for i in range(450, 900)]
    decoded = decode(engine_settings(Config()), sample(predictions), sample(outcomes))
    cut = pair(decoded, predictions_complete=False)
    assert (cut.judged, cut.share) == (400, 1.0)
    whole = pair(decoded, predictions_complete=True)
    assert (whole.judged, whole.matched) == (450, 400)


def test_nothing_to_judge_is_said() -> None:
    settings = engine_settings(Config())
    for predictions, outcomes in (([], []), ([{"id": "a", "ts": T, "score": 0.1}], [])):
        found = pair(decode(settings, sample(predictions), sample(outcomes)), predictions_complete=True)
        assert (found.conclusive, found.share) == (False, 0.0)
