"""Score windows: what they hold against the rows, the cap on segments, and what is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from streamcal.early.score_shift import population_stability
from streamcal.early.shift_panes import ShiftPanes
from streamcal.snapshot import Series
from streamcal.stats.aggregate_settings import WindowSpec
from streamcal.stats.layout import N_BINS, bin_index
from streamcal.stream.arrivals import Accepted, taken
from streamcal.stream.events import Names

MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_700_000_000_000 // HOUR * HOUR
ALL = Series("all", "all")


def panes_of(names: Names, max_segments: int = 100, windows: Sequence[tuple[str, int]] = (("1h", 60), ("6h", 360))):
    return ShiftPanes(names, ((), ("country",)), max_segments, MINUTE, [WindowSpec(*window) for window in windows])


def rows(rng: np.random.Generator, n: int, names: Names, countries: int, hours: float = 12.0) -> Accepted:
    profiles = [names.profile((f"c{i}",)) for i in range(countries)]
    model = names.model("m")
    score = rng.beta(1, 5, n)
    return Accepted(
        time_ms=START + (rng.random(n) * hours * HOUR).astype(np.int64),
        score=score,
        served=score,
        model=np.full(n, model, dtype=np.int32),
        profile=rng.choice(profiles, n).astype(np.int32),
    )


def recounted(held: Accepted, mine: np.ndarray, now: int, length: int) -> tuple[float, float]:
    """Index and floor of the rows `mine`; slots of five minutes, the window of `length` ms, 6 h before it."""
    slot = 5 * MINUTE
    stop = -(-now // slot) * slot
    windows = [(stop - length, stop), (stop - length - 6 * HOUR, stop - length)]
    counts = [
        np.bincount(bin_index(held.score[mine & (held.time_ms >= low) & (held.time_ms < high)]), minlength=N_BINS)
        for low, high in windows
    ]
    index, floor = population_stability(counts[0][None], counts[1][None])
    return float(index[0]), float(floor[0])


def test_windows_hold_the_rows_of_their_time_whatever_the_batches() -> None:
    rng = np.random.default_rng(1)
    names = Names(["country"])
    held = rows(rng, 20_000, names, countries=3)
    panes = panes_of(names)
    order = np.argsort(held.time_ms + rng.integers(0, 20 * MINUTE, len(held)))
    for part in np.array_split(order, 37):
        panes.fold(taken(held, part))
        # Never past what may still come: the rows are at most 20 minutes out of order.
        panes.advance(int(held.time_ms[part].max()) - 20 * MINUTE)
        now = int(held.time_ms[part].max()) - 20 * MINUTE
        if now < START + 8 * HOUR:
            continue
        seen = np.isin(np.arange(len(held)), order[: np.flatnonzero(order == part[-1])[0] + 1])
        (shifts,) = panes.shifts().values()
        expected = {(ALL, "1h"): seen}
        for i in range(3):
            expected[Series("country", f"country=c{i}"), "1h"] = seen & (held.profile == i)
        assert shifts.keys() == expected.keys()
        for key, mine in expected.items():
            index, floor = recounted(held, mine, now, HOUR)
            assert shifts[key].index == pytest.approx(index, rel=1e-12)
            assert shifts[key].noise_floor == pytest.approx(floor, rel=1e-12)


def test_what_is_beyond_the_cap_is_compared_together() -> None:
    rng = np.random.default_rng(2)
    names = Names(["country"])
    held = rows(rng, 30_000, names, countries=5)
    panes = panes_of(names, max_segments=2)
    panes.fold(held)
    panes.advance(START + 12 * HOUR)
    (shifts,) = panes.shifts().values()
    segments = sorted(series.segment for series, _ in shifts)
    assert segments == ["all", "country=__other__", "country=c0", "country=c1"]
    index, _ = recounted(held, held.profile >= 2, START + 12 * HOUR, HOUR)
    assert shifts[Series("country", "country=__other__"), "1h"].index == pytest.approx(index, rel=1e-12)


def test_a_quiet_segment_is_forgotten_and_its_number_used_again() -> None:
    rng = np.random.default_rng(3)
    names = Names(["country"])
    panes = panes_of(names)
    for day in range(6):
        profile = names.profile((f"day{day}",))
        part = rows(rng, 3_000, names, countries=1)
        moved = Accepted(
            part.time_ms + day * 24 * HOUR, part.score, part.served, part.model, np.full_like(part.profile, profile)
        )
        panes.fold(moved)
        panes.advance(START + day * 24 * HOUR + 12 * HOUR)
        (shifts,) = panes.shifts().values()
        assert {series.segment for series, _ in shifts} == {"all", f"country=day{day}"}
        assert len(panes.series) <= 3
    size = panes.nbytes
    panes.advance(START + 100 * 24 * HOUR)
    assert panes.shifts() == {}
    assert panes.nbytes < size


def test_a_single_window_has_nothing_before_it() -> None:
    names = Names(["country"])
    panes = panes_of(names, windows=(("24h", 1440),))
    panes.fold(rows(np.random.default_rng(4), 1_000, names, countries=1))
    panes.advance(START + 12 * HOUR)
    assert panes.shifts() == {}
