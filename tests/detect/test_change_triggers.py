import subprocess
import sys

import numpy as np
from alarm_streams import cells, panes, scores
from scipy.special import expit

from streamcal.detect.triggers import ADWIN, PAGE_HINKLEY, ChangeTriggers

GRID = scores(0.0105)


def fired(shifts, runs=4):
    watched, events = ChangeTriggers(), []
    rates = [expit(GRID.x + shift) for shift in shifts]
    for pane, rows in enumerate(panes(GRID, runs, 500, 10, rates)):
        of, bins, values = cells(GRID, rows)
        counts = np.zeros((runs, 284, 9), dtype=np.int64)
        np.add.at(counts, (of, bins), values)
        events += watched.update(pane, np.arange(runs), counts)
    return events


def test_both_tell_of_a_change():
    events = fired([0.0] * 100 + [0.8] * 60)
    for trigger in (ADWIN, PAGE_HINKLEY):
        assert {event.series for event in events if event.trigger == trigger and event.pane >= 100} == {0, 1, 2, 3}


def test_adwin_is_silent_on_a_score_wrong_from_the_first_day():
    assert [event for event in fired([0.8] * 160) if event.trigger == ADWIN] == []


def test_the_same_panes_set_off_the_same_triggers():
    shifts = [0.0] * 40 + [1.0] * 30
    assert fired(shifts) == fired(shifts)


def test_a_restart_makes_the_next_pane_the_first():
    watched = ChangeTriggers()
    rows = next(panes(GRID, 2, 500, 1, [GRID.p]))
    of, bins, values = cells(GRID, rows)
    counts = np.zeros((2, 284, 9), dtype=np.int64)
    np.add.at(counts, (of, bins), values)
    watched.update(0, np.arange(2), counts)
    watched.restart(np.array([1, 5]))
    assert sorted(watched._adwin) == [0]


def test_river_is_loaded_only_by_the_first_trigger():
    code = (
        "import sys, streamcal.detect.triggers as t, streamcal.detect.detector; t.ChangeTriggers();"
        "sys.exit('river' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
