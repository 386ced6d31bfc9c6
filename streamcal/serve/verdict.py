"""Whether the scores of a model can be trusted, in one word and one sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from streamcal.snapshot import AlarmEntry, AlarmState, MapEntry, ModelSnapshot, Series

__all__ = ["FAULT_WORDS", "NEAR", "Action", "Verdict", "VerdictState", "action_of", "moment", "verdict"]

VerdictState = Literal["ok", "watch", "alarm", "unknown"]

Action = Literal["promoted", "refused", "rolled_back", "published", "shadow", "pinned", "unpinned"]

NEAR: Final = 0.7
"""Share of the threshold from which evidence is worth watching."""

FAULT_WORDS: Final = {
    "scores_too_high": "scores are too high",
    "scores_too_low": "scores are too low",
    "over_confident": "scores are over-confident",
    "under_confident": "scores are under-confident",
}

_WHOLE: Final = Series("all", "all")
_PINS: Final[dict[str, Action]] = {"pin": "pinned", "unpin": "unpinned"}
_PROMOTIONS: Final[dict[str, Action]] = {
    "worse_than_parent": "rolled_back",
    "rollback": "rolled_back",
    "publication": "published",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an engineer on call reads first.

    Attributes
    ----------
    state : {"ok", "watch", "alarm", "unknown"}
    sentence : str
        What holds, and since when.
    done : str
        What the refit loop did about it; empty where there is nothing to say.
    since_ms : int or None
        Start of the oldest alarm in force.
    """

    state: VerdictState
    sentence: str
    done: str
    since_ms: int | None


def verdict(model: ModelSnapshot) -> Verdict:
    """Judge a model by its detector, and by nothing that is looked at too often to be believed."""
    raised = {series: state for series, state in model.alarms.items() if state.active is not None}
    if raised:
        return _alarm(model, raised)
    whole = model.alarms.get(_WHOLE)
    if whole is None or not math.isfinite(whole.evidence):
        return Verdict("unknown", f"No verdict yet: {_why_unknown(model)}.", "", None)
    standing = f"evidence {whole.evidence:.1f} of the {whole.threshold:.1f} that raise an alarm"
    near = [series for series, state in model.alarms.items() if state.evidence >= NEAR * state.threshold]
    if near:
        where = "the whole model" if _WHOLE in near else _segments(len(near))
        return Verdict("watch", f"No alarm, but evidence gathers in {where}; whole model: {standing}.", "", None)
    exceeded = sum(model.ece_exceeded.values())
    if exceeded:
        text = f"No alarm, but ECE is beyond alarms.ece in {exceeded} windows of segments; {standing}."
        return Verdict("watch", text, "", None)
    return Verdict("ok", f"No alarm: {standing}.", "", None)


def _alarm(model: ModelSnapshot, raised: dict[Series, AlarmState]) -> Verdict:
    open_ = [entry for entry in model.alarm_log if entry.ended_ms is None]
    since = min((entry.at_ms for entry in open_), default=None)
    whole = raised.get(_WHOLE)
    others = len(raised) - (whole is not None)
    if whole is not None and whole.active is not None:
        text = f"Alarm: {FAULT_WORDS[whole.active]} for the whole model{_since(open_, _WHOLE)}"
        text += f", and {_segments(others)} in alarm" if others else ""
    else:
        faults = Counter(FAULT_WORDS[state.active] for state in raised.values() if state.active is not None)
        text = f"Alarm in {_segments(others)}: {', '.join(f'{words} in {n}' for words, n in faults.most_common())}"
        text += "" if since is None else f"; the oldest since {moment(since)} UTC"
    return Verdict("alarm", f"{text}.", _done(model.map_log, since), since)


def _since(open_: Sequence[AlarmEntry], series: Series) -> str:
    times = [entry.at_ms for entry in open_ if entry.series == series]
    return f" since {moment(max(times))} UTC" if times else ""


def _segments(n: int) -> str:
    return "1 segment" if n == 1 else f"{n} segments"


def _why_unknown(model: ModelSnapshot) -> str:
    if model.blocking_partition is not None:
        return f"panes wait for partition {model.blocking_partition} to be sealed"
    if model.sealed_until_ms is None:
        return "labels come to be final one horizon after their predictions, and none are yet"
    return "no pane of labelled predictions has been sealed since the map in force began to serve"


def _done(log: Sequence[MapEntry], since_ms: int | None) -> str:
    """What happened to the map since the alarm."""
    if since_ms is None:
        return ""
    later = [entry for entry in log if entry.until_ms >= since_ms]
    if not later:
        return "No refit was attempted since."
    promoted = [entry for entry in later if action_of(entry) == "promoted"]
    rolled_back = [entry for entry in later if action_of(entry) == "rolled_back"]
    refused = Counter[str]()
    for entry in later:
        if action_of(entry) == "refused":
            refused[entry.reason] += entry.attempts
    parts = []
    if promoted:
        parts.append(f"{len(promoted)} promoted, the newest version {promoted[-1].version}")
    if rolled_back:
        parts.append(f"{len(rolled_back)} rolled back")
    if refused:
        parts.append("refused " + ", ".join(f"{n} times for {reason}" for reason, n in refused.most_common(3)))
    return f"Maps since: {'; '.join(parts)}." if parts else ""


def action_of(entry: MapEntry) -> Action:
    """What an entry of the map history tells of.

    What goes back to an earlier map is put in force like any other; its reason says what it was.
    """
    if entry.reason in _PINS:
        return _PINS[entry.reason]
    if not entry.promoted:
        return "refused" if entry.version is None else "shadow"
    return _PROMOTIONS.get(entry.reason, "promoted")


def moment(time_ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """`time_ms` as UTC text.

    >>> moment(1_361_000_000_123)
    '2013-02-16 07:33'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
