"""How long what the group confirmed is good for."""

from __future__ import annotations

import pytest
from state_topics import quiet_world, run_to_end

from streamcal.runtime.loop import Readers
from streamcal.runtime.running import Running


@pytest.mark.parametrize(("commit_every_s", "good_s"), [(1.0, 6.0), (15.0, 30.0)])
def test_figures_stand_for_a_session_and_over_a_commit_that_fails(commit_every_s: float, good_s: float) -> None:
    world, _ = quiet_world(3)
    monitor = run_to_end(world).monitor
    running = Running(monitor, Readers(), commit_every_s, 6.0)
    assert monitor.last_good_s is not None
    assert running._good_until_s() == monitor.last_good_s + good_s
    monitor.last_good_s = None
    assert running._good_until_s() is None
