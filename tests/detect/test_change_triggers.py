import subprocess
import sys

import numpy as np
import pytest
from alarm_streams import cells, panes, scores
from scipy.special import expit

from streamcal.detect.triggers import ADWIN, PAGE_HINKLEY, ChangeTriggers

GRID = scores(0.0105)


def fired(shifts, run=0):
    """(pane, trigger) of one of four runs."""
    watched, told = ChangeTriggers(), []
    rates = [expit(GRID.x + shift) for shift in shifts]
    for pane, rows in enumerate(panes(GRID, 4, 500, 10, rates)):
        of, bins, values = cells(GRID, rows)
        told += [(pane, trigger) for trigger in watched.update(bins[of == run], values[of == run])]
    return told


@pytest.mark.parametrize("run", range(4))
def test_both_tell_of_a_change(run):
    late = {trigger for pane, trigger in fired([0.0] * 100 + [0.8] * 60, run) if pane >= 100}
    assert late == {ADWIN, PAGE_HINKLEY}


@pytest.mark.parametrize("run", range(4))
def test_adwin_is_silent_on_a_score_wrong_from_the_first_day(run):
    assert [told for told in fired([0.8] * 160, run) if told[1] == ADWIN] == []


def test_the_same_panes_set_off_the_same_triggers():
    shifts = [0.0] * 40 + [1.0] * 30
    assert fired(shifts) == fired(shifts) != []


def test_after_a_restart_what_was_before_does_not_count():
    watched, told = ChangeTriggers(), []
    rates = [GRID.p] * 100 + [expit(GRID.x + 0.8)] * 160
    for pane, rows in enumerate(panes(GRID, 1, 500, 10, rates)):
        if pane == 100:
            watched.restart()
        _, bins, values = cells(GRID, rows)
        told += [trigger for trigger in watched.update(bins, values) if pane >= 100]
    assert ADWIN not in told


def test_a_pane_without_rows_is_none():
    assert ChangeTriggers().update(np.empty(0, dtype=np.int64), np.empty((0, 9), dtype=np.int64)) == []


def test_river_is_loaded_only_by_the_first_trigger():
    code = (
        "import sys, streamcal.detect.triggers as t, streamcal.detect.detector; t.ChangeTriggers();"
        "sys.exit('river' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
