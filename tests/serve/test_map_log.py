"""Which entries of the map history a snapshot holds."""

from __future__ import annotations

from types import SimpleNamespace

from streamcal.maps.loop import MapAttempt
from streamcal.published import _map_log


def attempt(version, at_ms, reason, *, promoted):
    return MapAttempt(version, "tracking", at_ms, promoted, reason, None)


def test_the_newest_entries_and_the_newest_changes_before_them_are_held_in_order():
    history = []
    for hour in range(500):
        change = hour % 100 == 7
        history.append(attempt(hour, hour, "" if change else "publication", promoted=True))
        history.append(attempt(None, hour, "no_gain", promoted=False))
    held = _map_log(SimpleNamespace(history=history))
    assert [entry.at_ms for entry in held[:4]] == [7, 107, 207, 307]
    assert len(held) == 5 + 50  # 407 is older than the newest fifty, too
    assert [(entry.version, entry.at_ms) for entry in held[-2:]] == [(499, 499), (None, 499)]


def test_what_changes_later_does_not_change_a_snapshot():
    history = [attempt(None, 1, "no_gain", promoted=False)]
    (held,) = _map_log(SimpleNamespace(history=history))
    history[0].attempts, history[0].until_ms = 2, 9
    assert (held.attempts, held.until_ms) == (1, 1)
