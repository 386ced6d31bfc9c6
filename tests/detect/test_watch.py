"""Sealed panes of one model: each weighed once, in order, under the right name; alarms with their times."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.detect.detector import DetectorSettings
from streamcal.detect.panes import QUIET_DAYS, WatchPanes
from streamcal.detect.watch import ModelWatch, WatchSettings
from streamcal.snapshot import Series
from streamcal.stats.counts import PLAIN, contributions
from streamcal.stats.layout import N_BINS
from streamcal.stats.scored import score_kinds
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import Names
from streamcal.stream.watermark import BEGINNING

HOUR_MS = 3_600_000
HORIZON_MS = 2 * HOUR_MS
"""Panes are an hour."""


class Stage:
    """One model's watch with its panes; rows are (pane, country, score, label)."""

    def __init__(self, sources=(0,), max_segments=10, change_triggers=False, **changes):
        chosen = {"panes_per_day": 24, "false_alarms_per_month": 1.0, "share": 1, "clear_after": 5, "dispersion": 1.0}
        self.names = Names(("country",))
        self.panes = WatchPanes(self.names, ((), ("country",)), max_segments, HOUR_MS)
        settings = WatchSettings(DetectorSettings(**(chosen | changes)), HOUR_MS, HORIZON_MS, change_triggers)
        self.watch = ModelWatch(settings, self.names.model("m"), sources)

    def fold(self, *rows, sign=1, model="m"):
        pane, country, score, label = (list(column) for column in zip(*rows, strict=True))
        size = len(rows)
        changes = RowChanges(
            sign=np.full(size, sign, dtype=np.int8),
            raw=np.full(size, np.nan),
            served=np.array(score, dtype=np.float64),
            weight=None,
            label=np.array(label, dtype=np.int8),
            prediction_ms=np.array(pane, dtype=np.int64) * HOUR_MS + 5,
            outcome_ms=np.array(pane, dtype=np.int64) * HOUR_MS + 6,
            model=np.full(size, self.names.model(model), dtype=np.int32),
            profile=np.array([self.names.profile((c,)) for c in country], dtype=np.int32),
            frozen=np.zeros(size, dtype=np.bool_),
        )
        self.panes.fold(changes, score_kinds(changes, PLAIN)[1])

    def seal(self, before, source=0):
        """All panes below `before` at one source, not a millisecond more."""
        self.watch.advance({source: (before * HOUR_MS, before * HOUR_MS + HORIZON_MS + 1)}, self.panes)

    def state(self, segment="all"):
        labels = Series("all" if segment == "all" else "country", segment)
        number = self.panes.labelled(self.watch.model).get(labels)
        return None if number is None else self.watch.states(np.array([number]))[0]

    @property
    def evidence(self):
        return {labels.segment: self.state(labels.segment).evidence for labels in self.panes.labelled(0)}


def weighed(*panes_of_rows, **changes):
    """Evidence of one series given (pane, [(score, label), ...]) in order, by a detector of its own."""
    detector = Stage(**changes).watch.detector
    for pane, rows in panes_of_rows:
        score, label = (np.array(column) for column in zip(*rows, strict=True))
        bins, values, _ = contributions(score.astype(np.float64), label.astype(np.int64))
        dense = np.zeros((N_BINS, values.shape[1]), dtype=np.int64)
        np.add.at(dense, bins, values)
        detector.update(pane, np.array([0]), dense[None])
    return float(detector.evidence(np.array([0])).evidence[0])


ROWS = [(0.3, 1), (0.4, 0), (0.9, 1), (0.3, 1)]


def test_a_pane_is_weighed_once_every_source_has_sealed_it():
    stage = Stage(sources=(0, 1))
    stage.fold(*((7, "c", *row) for row in ROWS))
    stage.watch.advance({0: (8 * HOUR_MS, 8 * HOUR_MS + HORIZON_MS + 1), 1: (BEGINNING, BEGINNING)}, stage.panes)
    assert (stage.watch.blocking, stage.watch.sealed_until_ms, stage.evidence["all"]) == (1, None, -np.inf)
    stage.watch.advance({1: (8 * HOUR_MS, 8 * HOUR_MS + HORIZON_MS)}, stage.panes)  # the outcomes are just at it
    assert (stage.watch.sealed_until_ms, stage.evidence["all"]) == (7 * HOUR_MS, -np.inf)
    stage.watch.advance({1: (8 * HOUR_MS - 1, 8 * HOUR_MS + HORIZON_MS + 1)}, stage.panes)
    assert stage.evidence["all"] == -np.inf
    stage.watch.advance({1: (8 * HOUR_MS, 8 * HOUR_MS + HORIZON_MS + 1)}, stage.panes)
    assert stage.watch.sealed_until_ms == 8 * HOUR_MS
    assert stage.evidence == {"all": weighed((7, ROWS)), "country=c": weighed((7, ROWS))}


@pytest.mark.parametrize("seals", [[20], [4, 9, 9, 20], range(1, 21)], ids=["at once", "in steps", "one by one"])
def test_panes_are_weighed_each_once_and_in_order_however_time_moves(seals):
    stage = Stage()
    given = [(pane, ROWS[: 1 + pane % 4]) for pane in (8, 3, 5, 4, 12)]
    for pane, rows in given:
        stage.fold(*((pane, "c", *row) for row in rows))
    for before in seals:
        stage.seal(before)
    assert stage.evidence["all"] == weighed(*sorted(given))
    assert stage.panes.nbytes == 0


def test_what_comes_after_a_pane_was_weighed_changes_no_evidence():
    stage = Stage()
    stage.fold(*((5, "c", *row) for row in ROWS))
    stage.seal(6)
    before = stage.evidence
    stage.fold((5, "c", 0.1, 1), (4, "c", 0.1, 1))
    stage.seal(9)
    assert stage.evidence == before
    assert stage.panes.nbytes == 0


def test_a_correction_before_it_is_weighed_counts():
    stage = Stage()
    stage.fold(*((5, "c", *row) for row in ROWS), (5, "c", 0.2, 0), (6, "c", 0.2, 0))
    stage.fold((5, "c", 0.2, 0), (6, "c", 0.2, 0), sign=-1)
    stage.seal(9)
    assert stage.evidence["all"] == weighed((5, ROWS))


def test_evidence_begins_again_with_the_first_pane_that_a_new_map_served():
    stage = Stage()
    for pane in range(8):
        stage.fold(*((pane, "c", *row) for row in ROWS))
    hours = np.arange(8) * HOUR_MS
    stage.watch.note_served(hours, np.where(hours >= 5 * HOUR_MS, 3, 2))
    stage.seal(5)
    assert stage.evidence["all"] == weighed(*((pane, ROWS) for pane in range(5)))
    stage.seal(8)
    assert stage.evidence["all"] == weighed(*((pane, ROWS) for pane in range(5, 8)))


WRONG = [(0.9, 0)] * 60
RIGHT = [(0.9, 1)] * 54 + [(0.9, 0)] * 6


def test_an_alarm_has_the_time_it_could_be_known_and_ends_when_calm():
    stage = Stage()
    stage.fold(*((3, "c", *row) for row in WRONG))
    for pane in range(4, 12):
        stage.fold(*((pane, "c", *row) for row in RIGHT))
    stage.seal(9)
    alarms = [(a.at_ms, a.ended_ms, a.series, a.fault) for a in stage.watch.alarms]
    known = 4 * HOUR_MS + HORIZON_MS
    at_9 = 9 * HOUR_MS + HORIZON_MS
    assert alarms == [
        (known, at_9, Series("all", "all"), "scores_too_high"),
        (known, at_9, Series("country", "country=c"), "scores_too_high"),
    ]
    assert stage.watch.alarms[0].evidence > stage.state().threshold
    assert stage.state().active is None


def test_an_alarm_in_force_has_no_end():
    stage = Stage()
    stage.fold(*((3, "c", *row) for row in WRONG))
    stage.seal(4)
    assert [alarm.ended_ms for alarm in stage.watch.alarms] == [None, None]
    assert stage.state().active == "scores_too_high"


def test_alarms_of_a_pane_are_in_order_of_their_labels():
    for countries in ("abc", "cab"):
        stage = Stage()
        for country in countries:
            stage.fold(*((3, country, *row) for row in WRONG))
        stage.seal(4)
        assert [a.series.segment for a in stage.watch.alarms] == ["all", "country=a", "country=b", "country=c"]


# --- the cap -------------------------------------------------------------------------------------------------


def test_places_go_by_first_pane_then_label_whatever_came_first():
    stage = Stage(max_segments=2)
    stage.fold((5, "a", 0.3, 1), (5, "b", 0.3, 1))
    stage.fold((4, "z", 0.3, 1), (5, "y", 0.4, 0))
    stage.seal(6)
    assert set(stage.evidence) == {"all", "country=z", "country=a", "country=__other__"}
    beyond = weighed((5, [(0.3, 1), (0.4, 0)]))  # b and y
    assert stage.evidence["country=__other__"] == beyond
    assert stage.evidence["country=a"] == weighed((5, [(0.3, 1)]))


def test_others_stay_together_in_later_panes():
    stage = Stage(max_segments=1)
    stage.fold((5, "a", 0.3, 1), (5, "b", 0.3, 1), (6, "b", 0.3, 1), (7, "b", 0.2, 1), (7, "c", 0.2, 0))
    for before in (6, 7, 8):
        stage.seal(before)
    others = weighed((5, [(0.3, 1)]), (6, [(0.3, 1)]), (7, [(0.2, 1), (0.2, 0)]))
    assert stage.evidence["country=__other__"] == others
    assert set(stage.evidence) == {"all", "country=a", "country=__other__"}


def test_a_segment_called_other_takes_no_place():
    stage = Stage(max_segments=1)
    stage.fold((5, "__other__", 0.3, 1), (6, "a", 0.3, 1))
    stage.seal(7)
    assert set(stage.evidence) == {"all", "country=a", "country=__other__"}


# --- quiet series --------------------------------------------------------------------------------------------

MONTH = 24 * QUIET_DAYS


def test_a_series_quiet_for_a_month_is_forgotten_its_alarm_ends_and_its_place_is_free():
    stage = Stage(max_segments=1)
    stage.fold(*((3, "a", *row) for row in WRONG))
    stage.fold((3 + MONTH, "b", 0.3, 1), (30 + MONTH, "b", 0.3, 1))
    stage.seal(4 + MONTH)
    assert set(stage.evidence) == {"all", "country=a", "country=__other__"}
    assert stage.watch.alarms[1].ended_ms is None
    stage.seal(31 + MONTH)
    assert set(stage.evidence) == {"all", "country=b", "country=__other__"}
    (mine,) = (alarm for alarm in stage.watch.alarms if alarm.series.segment == "country=a")
    assert mine.ended_ms == (24 + MONTH) * HOUR_MS + HORIZON_MS, "the end of the last pane of a month without it"
    assert stage.evidence["country=b"] == weighed((30 + MONTH, [(0.3, 1)]))


@pytest.mark.parametrize("ahead", [False, True], ids=["folded as it comes", "folded ahead"])
def test_a_series_that_comes_back_begins_anew_whether_its_rows_were_known_or_not(ahead):
    stage = Stage()
    first = [(3, "a", 0.3, 1), (3, "b", 0.3, 1)]
    later = [(pane + MONTH, country, 0.3, 1) for pane, country in ((48, "b"), (72, "a"))]
    if ahead:
        stage.fold(*first, *later)
        stage.seal(4)
    else:
        stage.fold(*first)
        stage.seal(4)
        stage.fold(*later[:1])
        stage.seal(60 + MONTH)
        stage.fold(*later[1:])
    stage.seal(80 + MONTH)
    assert stage.evidence["country=a"] == weighed((72 + MONTH, [(0.3, 1)]))
    assert stage.evidence["all"] == weighed((3, [(0.3, 1)] * 2), (48 + MONTH, [(0.3, 1)]), (72 + MONTH, [(0.3, 1)]))


def test_numbers_of_forgotten_series_are_used_again():
    stage = Stage()
    for month in range(5):
        for k in range(8):
            stage.fold((2 * month * MONTH + k, f"{month}.{k}", 0.3, 1))
        stage.seal(2 * month * MONTH + 8)
    assert len(stage.panes.series) <= 1 + 2 * 8
    assert set(stage.evidence) == {"all", *(f"country=4.{k}" for k in range(8))}


def test_models_are_watched_apart():
    stage = Stage()
    stage.fold(*((5, "c", *row) for row in ROWS))
    stage.fold(*((5, "c", 0.1, 1) for _ in range(4)), model="other")
    stage.seal(6)
    assert stage.evidence["all"] == weighed((5, ROWS))
    assert stage.panes.of_model(stage.names.model("other")).panes() == [5]


# --- change triggers -----------------------------------------------------------------------------------------


def test_change_triggers_watch_the_whole_model_with_the_time_a_pane_could_be_known():
    stage = Stage(change_triggers=True)
    draw = np.random.default_rng(1)
    for pane in range(60):
        rate = 0.1 if pane < 30 else 0.6
        stage.fold(*((pane, "ab"[k % 2], 0.1, int(draw.random() < rate)) for k in range(100)))
    stage.seal(60)
    fired = {(change.at_ms - HORIZON_MS) // HOUR_MS - 1 for change in stage.watch.changes}
    assert fired
    assert all(30 <= pane < 60 for pane in fired)
    assert {change.trigger for change in stage.watch.changes} <= {"adwin", "page_hinkley"}
    assert Stage().watch.changes == []
