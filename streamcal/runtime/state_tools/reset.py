"""Begin anew: everything counted is void, and the next start reads the inputs from where it is told.

Whatever moment this ends at, doing it again completes it. The states of the sources go first: from then on nothing new
is told under an old claim, and what is still on its way is below the floors that the aggregator's state is given after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streamcal.errors import StateFormatError, StreamcalError
from streamcal.parts.mark import MarkKey
from streamcal.parts.part import StoredKey
from streamcal.runtime.state_tools.store import StateStore
from streamcal.state.about import OTHER_PARTITIONS
from streamcal.state.claimed_log import ClaimedLog
from streamcal.state.markers import CountsReset, SourceReset
from streamcal.stream.events import TOPICS

__all__ = ["Begin", "ResetDone", "begin_at", "reset"]

Begin = Mapping[int, Mapping[str, int]]
"""Source to topic to the offset to begin at."""


@dataclass(frozen=True, slots=True)
class ResetDone:
    """What a reset did.

    Attributes
    ----------
    sources, shards : int
        States made void.
    taken_back : int
        Keys of the counts topic.
    begin : mapping
        Where reading begins; empty: as for a new group.
    """

    sources: int
    shards: int
    taken_back: int
    begin: Begin


def begin_at(store: StateStore, at_ms: int | None) -> Begin:
    """Offsets of all inputs at a time of their records, or (None) of the first that are kept."""
    return {
        number: {
            topic: store.input_kept((topic, number))[0] if at_ms is None else store.input_from((topic, number), at_ms)
            for topic in TOPICS
        }
        for number in range(store.sources)
    }


def reset(store: StateStore, about: bytes, begin: Begin | None = None) -> ResetDone:
    """Make all state and counts of a group void.

    Parameters
    ----------
    store : StateStore
    about : bytes
        What our claims say.
    begin : Begin, optional
        Where the next start reads from; by default as for a new group.

    Raises
    ------
    StreamcalError
        The inputs have other numbers of partitions than the state: nothing was done.
    FencedError
        A process of the group is at work.
    AppendUncertainError
        The broker did not answer; to be done again.
    """
    _check_partitions(store)
    begin, at_ms = begin or {}, int(time.time() * 1000)
    told = {shard: list(_keys(store, shard)) for shard in range(store.shards)}
    highest: dict[int, int] = {}
    for standing in (standing for held in told.values() for standing in held):
        if standing.source is not None:
            highest[standing.source] = max(standing.claim, highest.get(standing.source, -1))
    floors = {}
    for number in range(store.sources):
        marker = SourceReset(at_ms=at_ms, begin=dict(begin.get(number, {})))
        log = ClaimedLog(store.state(number), store.new_author(), where=f"state[{number}]")
        floors[number] = log.begin_anew(about, marker.to_bytes(), outrank=highest.get(number, -1))
    for shard in range(store.shards):
        number = store.sources + shard
        counts = CountsReset(at_ms=at_ms, position=store.counts_kept(shard)[1], floors=floors)
        log = ClaimedLog(store.state(number), store.new_author(), where=f"state[{number}]")
        log.begin_anew(about, counts.to_bytes())
    return ResetDone(store.sources, store.shards, _take_back(store, told), begin)


def _check_partitions(store: StateStore) -> None:
    changed = {topic: n for topic, n in store.input_partitions.items() if n != store.sources}
    if changed:
        now = ", ".join(f"{topic} has {n}" for topic, n in changed.items())
        raise StreamcalError(
            f"the state is of inputs with {store.sources} partitions, and {now} now", hint=OTHER_PARTITIONS
        )


class _Standing(NamedTuple):
    """A key on the counts topic that has a value."""

    key: bytes
    model: str | None
    """None: on whichever partition."""
    source: int | None
    """None: no source can have written it."""
    claim: int = -1


def _keys(store: StateStore, shard: int) -> Iterator[_Standing]:
    """What stands on a partition of the counts topic; marks first, and what is not ours last."""
    standing: dict[bytes, bool] = {}
    for _, key, value in store.counts(shard):
        if key is not None:
            standing[key] = value is not None
    parts, foreign = [], []
    for key in (key for key, stands in standing.items() if stands):
        mark = MarkKey.from_bytes(key)
        if mark is not None:
            yield _Standing(key, None, mark.source, mark.claim)
            continue
        try:
            stored = StoredKey.from_bytes(key)
        except StateFormatError:
            foreign.append(_Standing(key, None, None))
        else:
            parts.append(_Standing(key, stored.part.model, stored.source, stored.claim))
    yield from parts
    yield from foreign


def _take_back(store: StateStore, told: Mapping[int, list[_Standing]]) -> int:
    keys = {standing.key: standing.model for held in told.values() for standing in held}
    for key, model in keys.items():
        store.topic.publish(model, key, None)
    if keys:
        store.topic.flush()
    return len(keys)
