"""What is held back for another side is not taken for silent, whatever is known of its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamcal.runtime.idle import IdleRules
from streamcal.runtime.pacing import Pacing, PacingSettings

PREDICTIONS, OUTCOMES = ("predictions", 0), ("outcomes", 0)


class Task:
    """A task far ahead with its predictions, as `Pacing` sees one."""

    def __init__(self) -> None:
        self.source = SimpleNamespace(watermarks=(1_000, 10), nbytes=100, pending=5)
        self.advanced: list[Any] = []

    def advance(self, topic: str, to_ms: int) -> None:
        self.advanced.append((topic, to_ms))


class Group:
    """Says that everything was read to its end, but for outcomes while `unread`."""

    unread = 7

    def __init__(self) -> None:
        self.paused: set[Any] = set()

    def lag(self) -> dict[Any, int]:
        return {PREDICTIONS: 0, OUTCOMES: self.unread}

    def pause(self, parts: Any, *, paused: bool) -> None:
        (self.paused.update if paused else self.paused.difference_update)(parts)

    def say(self, notes: Any) -> None: ...

    def said(self) -> dict[Any, str]:
        return {}


def test_a_side_that_waits_for_the_other_is_not_idle() -> None:
    clock = [0.0]
    rules = IdleRules(timeout_s=5.0, behind_clock_ms=0)
    settings = PacingSettings(rules, ahead_bytes=10, wall_ms=lambda: 5_000 + int(clock[0] * 1000))
    group, task = Group(), Task()
    cluster: Any = SimpleNamespace(group=group, sources=1)
    pacing = Pacing(settings, cluster, lambda: clock[0])
    pacing.opened(0)
    for _ in range(20):
        clock[0] += 1.0
        pacing.heard(OUTCOMES)
        pacing.step({0: task})  # type: ignore[dict-item]
    assert group.paused == {PREDICTIONS}
    assert task.advanced == []
    group.unread = 0
    for _ in range(10):
        clock[0] += 1.0
        pacing.step({0: task})  # type: ignore[dict-item]
    assert group.paused == set()
    assert {topic for topic, _ in task.advanced} == {"predictions", "outcomes"}


def test_a_silence_to_which_nobody_listened_begins_anew() -> None:
    clock = [0.0]
    settings = PacingSettings(IdleRules(timeout_s=5.0, behind_clock_ms=0), wall_ms=lambda: 5_000 + int(clock[0] * 1000))
    group, task = Group(), Task()
    group.unread = 0
    cluster: Any = SimpleNamespace(group=group, sources=1)
    pacing = Pacing(settings, cluster, lambda: clock[0])
    pacing.opened(0)
    for clock[0] in (1.0, 2.0, 3.0, 33.0, 34.0, 36.0, 37.5):
        pacing.step({0: task})  # type: ignore[dict-item]
    assert task.advanced == []
    clock[0] = 38.5
    pacing.step({0: task})  # type: ignore[dict-item]
    assert task.advanced != []
