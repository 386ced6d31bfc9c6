"""What the refit loop promises, in quick forms; `benchmarks/maps.py` has the full ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from refit_streams import DAY, HOUR, Driven, Labelled, Truth, attempts, drive, served_by, settings, sigmoid, stream

from streamcal.maps.families import Identity, Platt
from streamcal.maps.fit import FITS
from streamcal.maps.loop import ModelLoop
from streamcal.stats.fit_panes import FitPanes

Floats = NDArray[np.float64]

MEAN, SPREAD = -4.91, 1.5
GRID: Floats = np.random.default_rng(0).normal(MEAN, SPREAD, 20_000)
TRUTHS: dict[str, Truth] = {
    "platt": lambda x, _: 0.687 * x - 1.015,
    "identity": lambda x, _: x,
    "wiggly": lambda x, _: 0.8 * x - 0.737 + 0.51 * np.sin(1.5 * x),
}


def excess(truth: Floats, served: Floats) -> float:
    """Expected log loss above the truth's, in % of it."""
    rate = sigmoid(truth)
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate)).mean()
    loss = -(rate * np.log(served) + (1 - rate) * np.log1p(-served)).mean()
    return 100 * float((loss - entropy) / entropy)


def log_loss(q: Floats, y: NDArray[np.bool_]) -> float:
    return float(-np.where(y, np.log(q), np.log1p(-q)).mean())


@pytest.mark.parametrize(("positives", "worse"), [(50, 0.1), (300, 0.5), (2000, 0.1)])
@pytest.mark.parametrize("name", TRUTHS)
def test_what_is_in_force_is_near_the_best_family_and_never_behind_raw_scores(
    name: str, positives: int, worse: float
) -> None:
    truth = TRUTHS[name]
    on_grid = truth(GRID, np.zeros(len(GRID), dtype=np.int64))
    rows = round(positives / float(sigmoid(on_grid).mean()))
    served: list[float] = []
    families: dict[str, list[float]] = {"identity": []}
    for seed in range({50: 2, 300: 6, 2000: 3}[positives]):
        driven = drive(
            stream(np.random.default_rng([3, seed, positives]), rows, 10 * DAY, truth),
            settings(horizon_ms=6 * HOUR),
        )
        served.append(excess(on_grid, served_by(driven.loop, sigmoid(GRID))))
        counts = driven.fits.whole()
        line = FITS["platt"](counts, Identity())
        assert isinstance(line, Platt)
        for family in ("identity", "intercept", "platt", "cir"):
            fitted = FITS[family](counts, line)
            q = sigmoid(GRID) if isinstance(fitted, str) else fitted.apply(sigmoid(GRID))
            families.setdefault(family, []).append(excess(on_grid, q))
    best = families["identity"] if positives == 50 else min(families.values(), key=np.mean)
    assert np.mean(served) <= np.mean(best) + worse


@pytest.mark.parametrize("seed", range(2))
def test_a_calibrated_champion_is_kept_through_three_months_of_attempts(seed: int) -> None:
    rows = stream(np.random.default_rng([7, seed]), 90 * 600, 90 * DAY, lambda x, _: x, mean=-1.5, delay_ms=6 * HOUR)
    driven = drive(rows, settings(every_ms=3 * HOUR))
    assert driven.documents == []
    assert driven.loop.results["refused", "no_gain"] > 500


@pytest.mark.parametrize(("mean", "per_day"), [(-1.5, 2000), (MEAN, 10_000)])
def test_labels_flipped_in_one_burst_leave_no_map_behind(mean: float, per_day: int) -> None:
    days, began = 50, 0.4
    rng = np.random.default_rng(11)
    rows = stream(rng, days * per_day, days * DAY, lambda x, _: x, mean=mean, delay_ms=6 * HOUR)
    flipped = np.zeros(len(rows.y), dtype=np.bool_)
    flipped[int(began * len(flipped)) : int((began + 0.02) * len(flipped))] = True
    poisoned = Labelled(rows.predicted_ms, rows.known_ms, rows.x, rows.y ^ flipped)
    chosen = settings()
    driven = drive(poisoned, chosen)
    end = int(rows.known_ms[flipped][-1])
    for promoted, back in zip(driven.documents[::2], driven.documents[1::2], strict=True):
        assert back.family == "identity"
        assert back.at_ms - promoted.at_ms <= 2 * chosen.cool_down_ms
        assert promoted.at_ms <= end + DAY
    raw, served = sigmoid(rows.x), driven.served_at(rows.predicted_ms, rows.x)
    assert log_loss(served, poisoned.y) <= log_loss(raw, poisoned.y) + 0.002
    assert log_loss(served, rows.y) <= log_loss(raw, rows.y) + 0.002


def test_the_same_maps_come_whatever_is_live() -> None:
    rows = stream(np.random.default_rng(13), 30 * 1500, 30 * DAY, lambda x, _: 0.8 * x - 0.3, mean=-1.0)
    fits = {}
    for prior in (None, Platt(1.2, 0.5)):
        driven = Driven(ModelLoop(settings(prior=prior), "m", made := FitPanes(9)), made, [])
        for moment in attempts(driven, rows):
            driven.loop.attempt(moment)
        fits[prior] = {family: driven.loop.challengers.newest(family) for family in ("intercept", "platt", "cir")}
    fresh, live = fits.values()
    for family, map_ in fresh.items():
        assert not isinstance(map_, str)
        other = live[family]
        assert not isinstance(other, str)
        for name, value in map_.parameters().items():
            assert other.parameters()[name] == pytest.approx(value, abs=1e-9)


def test_a_real_fault_after_a_calm_half_year_is_mended_within_days() -> None:
    change = 180 * DAY

    def truth(x: Floats, predicted_ms: NDArray[np.int64]) -> Floats:
        return x - 0.5 * (predicted_ms >= change)

    rows = stream(np.random.default_rng(17), 200 * 600, 200 * DAY, truth, mean=-1.5, delay_ms=6 * HOUR)
    driven = drive(rows, settings(every_ms=3 * HOUR))
    first = driven.documents[0]
    assert change < first.at_ms < change + 8 * DAY


def test_labels_known_later_change_no_earlier_map() -> None:
    rows = stream(
        np.random.default_rng(19), 12 * 3000, 12 * DAY, lambda x, t: x - 0.8 * np.sin(t / DAY), mean=-1.0, delay_ms=HOUR
    )
    chosen = settings(families=("intercept", "platt", "tracking"))
    at = 8 * DAY + 20 * 60_000
    later = rows.known_ms >= at
    other = drive(Labelled(rows.predicted_ms, rows.known_ms, rows.x, rows.y ^ later), chosen)
    before, changed = ([d for d in driven.documents if d.at_ms <= at] for driven in (drive(rows, chosen), other))
    assert "tracking" in {document.family for document in before}
    assert before == changed
    assert any(document.at_ms > at for document in other.documents)
