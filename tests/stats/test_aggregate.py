"""All counts together, against plain sums over the rows folded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recount_counts import bin_of, row_columns

from streamcal.errors import StateLimitError
from streamcal.stats.aggregate import EVERYTHING, Aggregate, AggregateSettings, WindowSpec
from streamcal.stats.cells import CODES_PER_SERIES, Cells
from streamcal.stats.series import SeriesTable
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import Names

PANE = 1000
HOUR, DAY = 10, 30
"""Panes of the two windows."""
COUNTRIES = ("a", "b", "c")
DAY_MS = 86_400_000


def aggregate(*, max_segments: int = 100, mature: bool = False, **options: Any) -> tuple[Names, Aggregate]:
    names = Names(("country",))
    names.model("m0")
    names.model("m1")
    for country in COUNTRIES:
        names.profile((country,))
    options = {"by_outcome_time": False, **options}
    chosen = AggregateSettings(PANE, [WindowSpec("hour", HOUR), WindowSpec("day", DAY)], **options)
    return names, Aggregate(
        chosen, SeriesTable(names, ((), ("country",)), max_segments), lambda _: mature, lambda _: None
    )


def changes(rows: list[dict[str, Any]]) -> RowChanges:
    def column(name: str, default: Any, dtype: Any) -> Any:
        return np.array([row.get(name, default) for row in rows], dtype=dtype)

    weighted = any("weight" in row for row in rows)
    return RowChanges(
        sign=column("sign", 1, np.int8),
        raw=column("raw", 0.3, np.float64),
        served=column("served", 0.3, np.float64),
        weight=column("weight", 1.0, np.float64) if weighted else None,
        label=column("label", 1, np.int8),
        prediction_ms=column("made", 0, np.int64),
        outcome_ms=column("known", 0, np.int64),
        model=column("model", 0, np.int32),
        profile=column("profile", 0, np.int32),
        frozen=column("frozen", False, np.bool_),
    )


def of_window(names: Names, counts: Aggregate, window: str) -> dict[tuple[int, str, int], dict[int, list[int]]]:
    """Non-zero bins by model, segment and kind."""
    found = {}
    for (model, labels), numbers in counts.series.published(counts.alive(window)).items():
        table = counts.by_series(window, np.array(numbers)).sum(axis=0)
        for kind in (0, 1):
            bins = {int(b): table[kind, b].tolist() for b in np.flatnonzero(table[kind].any(axis=1))}
            if bins:
                found[model, labels.segment, kind] = bins
    return found


def summed(rows: list[dict[str, Any]], *, weighted: bool) -> dict[tuple[int, str, int], dict[int, list[int]]]:
    found: dict[tuple[int, str, int], dict[int, list[int]]] = {}
    for row in rows:
        for segment in ("all", f"country={COUNTRIES[row.get('profile', 0)]}"):
            for kind, score in enumerate((row.get("raw", 0.3), row.get("served", 0.3))):
                if np.isnan(score):
                    continue
                columns = row_columns(score, row.get("label", 1), row.get("weight", 1.0), weighted=weighted)
                bins = found.setdefault((row.get("model", 0), segment, kind), {})
                held = bins.setdefault(bin_of(score), [0] * len(columns))
                bins[bin_of(score)] = [a + row.get("sign", 1) * b for a, b in zip(held, columns, strict=True)]
    kept = {key: {b: c for b, c in bins.items() if any(c)} for key, bins in found.items()}
    return {key: bins for key, bins in kept.items() if bins}


@st.composite
def streams(draw: st.DrawFn) -> list[list[dict[str, Any]] | int]:
    """Rows, corrections of rows, and event times on the way; weights from some point on."""
    steps: list[list[dict[str, Any]] | int] = []
    counted: list[dict[str, Any]] = []
    weighted = False
    now = 0
    for _ in range(draw(st.integers(1, 12))):
        weighted |= draw(st.integers(0, 5)) == 0
        if draw(st.integers(0, 2)) == 0:
            now += draw(st.integers(0, 40_000))
            steps.append(now)
            continue
        rows = []
        for _ in range(draw(st.integers(1, 5))):
            made = max(0, now + draw(st.integers(-45_000, 15_000)))
            score = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
            row: dict[str, Any] = {"made": made, "known": made + draw(st.integers(0, 9000)), "raw": score}
            row["served"] = draw(st.sampled_from([score, 0.5]))
            if draw(st.integers(0, 5)) == 0:
                row["raw"] = float("nan")
            row |= {
                "label": draw(st.integers(0, 1)),
                "model": draw(st.integers(0, 1)),
                "profile": draw(st.integers(0, 2)),
            }
            if weighted:
                row["weight"] = draw(st.sampled_from([0.0, 1.0, 2.5]))
            rows.append(row)
            counted.append(row)
        if counted and draw(st.booleans()):
            old = counted.pop(draw(st.integers(0, len(counted) - 1)))
            rows += [{**old, "sign": -1}, {**old, "label": 1 - old["label"]}]
            counted.append(rows[-1])
        steps.append(rows)
    return steps


@settings(deadline=None, max_examples=150)
@given(steps=streams(), by_outcome_time=st.booleans(), bounded=st.booleans())
def test_every_window_is_the_sum_of_the_rows_in_it(
    steps: list[list[dict[str, Any]] | int], by_outcome_time: bool, bounded: bool
) -> None:
    names, counts = aggregate(by_outcome_time=by_outcome_time, keep_everything=bounded)
    clock = "known" if by_outcome_time else "made"
    rows: list[dict[str, Any]] = []
    stop: int | None = None
    for step in steps:
        if isinstance(step, int):
            stop = -(-step // PANE)
            counts.advance(step)
        else:
            counts.fold(changes(step))
            rows += step
        weighted = any(row.get("weight", 1.0) != 1.0 for row in rows)
        for window, panes in (("hour", HOUR), ("day", DAY)):
            inside = [] if stop is None else [row for row in rows if stop - panes <= row[clock] // PANE < stop]
            assert of_window(names, counts, window) == summed(inside, weighted=weighted)
        everything = summed(rows, weighted=weighted)
        if not bounded:
            everything = {key: bins for key, bins in everything.items() if key[1] == "all"}
        found = of_window(names, counts, EVERYTHING)
        assert found == everything


def test_segments_of_which_only_old_rows_come_take_no_slot() -> None:
    names, counts = aggregate(max_segments=1)
    counts.advance(1000 * PANE)
    for i in range(50):
        profile = names.profile((f"x{i}",))
        counts.fold(changes([{"made": 5 * PANE, "profile": profile}]))
    assert len(counts.series) == 1
    counts.fold(changes([{"made": 999 * PANE}]))
    assert [labels.segment for _, labels in counts.series.published(counts.alive("day"))] == ["all", "country=a"]
    assert counts.totals(EVERYTHING)[:, 0].sum() == 2 * 51


def test_a_segment_quiet_for_the_longest_window_disappears_and_its_number_serves_another() -> None:
    names, counts = aggregate()
    counts.fold(changes([{"made": 0, "profile": 0, "known": 7}]))
    counts.advance(PANE)
    number = int(counts.series.of_rows(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32))[1, 0])
    counts.advance((DAY + 1) * PANE)
    assert of_window(names, counts, "day") == {}
    counts.fold(changes([{"made": DAY * PANE, "profile": 1, "label": 0, "known": 3}]))
    assert of_window(names, counts, "day") == summed([{"profile": 1, "label": 0}], weighted=False)
    again = int(counts.series.of_rows(np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.int32))[1, 0])
    assert again == number
    assert counts.last_outcome_ms[number] == 3


def test_slots_do_not_depend_on_how_far_event_time_moves_at_once() -> None:
    rows = [
        {"made": pane * PANE, "profile": profile}
        for profile, panes in enumerate(([0, 45], [3, 20, 40], [44]))
        for pane in panes
    ]
    shown = []
    for stops in (range(1, 47), [46], [2, 46], [33, 34, 46]):
        _, counts = aggregate(max_segments=2)
        counts.fold(changes(rows))
        for stop in stops:
            counts.advance(stop * PANE)
        shown.append([labels.segment for _, labels in counts.series.published(counts.alive("day"))])
    # a was quiet for more than a window before pane 45, so c came before it.
    assert shown == [["all", "country=b", "country=c", "country=__other__"]] * 4


@pytest.mark.parametrize(("mature", "pane"), [(False, 7), (True, 2)])
def test_fits_read_frozen_rows_by_the_time_their_model_goes_by(mature: bool, pane: int) -> None:
    _, counts = aggregate(mature=mature)
    rows = [{"made": 2000, "known": 7000, "frozen": True, "model": 1}, {"made": 2000, "known": 7000}]
    rows += [{"made": 2000, "known": 7000, "frozen": True, "raw": float("nan")}]
    counts.fold(changes(rows))
    assert counts.fits(1).panes() == [pane]
    assert counts.fits(0).panes() == []
    assert counts.fits(1).of_pane(pane).values.tolist() == [row_columns(0.3, 1, 1.0, weighted=False)]


def test_calendar_periods_are_those_of_the_prediction_in_utc() -> None:
    _, counts = aggregate(period="month", keep_everything=True, by_outcome_time=True)
    january = 1_704_067_200_000  # 2024-01-01T00:00:00Z
    made = [january - 1, january, january + 31 * DAY_MS - 1, january + 60 * DAY_MS - 1, january + 60 * DAY_MS]
    counts.fold(changes([{"made": t, "known": t + DAY_MS} for t in made]))
    starts = counts.periods()
    assert starts == [january - 31 * DAY_MS, january, january + 31 * DAY_MS, january + 60 * DAY_MS]
    assert counts.period_ends(starts) == [*starts[1:], january + 91 * DAY_MS]
    whole = np.array([counts.series.whole(0)])
    assert [int(counts.period_counts(start, whole)[0, 0, :, 0].sum()) for start in starts] == [1, 2, 1, 1]


def full(counts: Aggregate) -> None:
    """Bring the bin of .3 to the border of the range."""
    whole = counts.series.wholes(np.zeros(1, dtype=np.int32))[0]
    code = np.array([whole * CODES_PER_SERIES + bin_of(0.3)])
    counts._everything.add(Cells(code, np.full((1, 9), 1 << 62)))


def test_a_daemon_gives_up_the_window_of_everything_before_it_would_overflow() -> None:
    _, counts = aggregate()
    full(counts)
    counts.fold(changes([{"made": 0}]))
    counts.advance(PANE)
    assert counts.alive(EVERYTHING).tolist() == []
    counts.fold(changes([{"made": 0, "weight": 2.0}]))
    assert counts.alive(EVERYTHING).tolist() == []
    assert counts.totals("day")[:, 0].sum() == 8  # two rows, two cuts, two score kinds


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_bounded_input_is_refused_where_it_would_overflow(weight: float) -> None:
    _, counts = aggregate(keep_everything=True)
    full(counts)
    with pytest.raises(StateLimitError, match="beyond 2\\^62"):
        counts.fold(changes([{"made": 0, "weight": weight}]))


def test_counts_given_out_are_copies() -> None:
    _, counts = aggregate(keep_everything=True)
    counts.fold(changes([{"made": 0}]))
    counts.advance(PANE)
    whole = np.array([counts.series.whole(0)])
    given_out = [counts.by_series(window, whole) for window in ("hour", EVERYTHING)]
    kept = [table.copy() for table in given_out]
    counts.fold(changes([{"made": 0}]))
    assert all((a == b).all() for a, b in zip(given_out, kept, strict=True))
    beyond = counts.by_series("hour", np.array([whole[0], 10_000]))
    assert beyond[0].any()
    assert not beyond[1].any()
