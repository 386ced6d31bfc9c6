"""Begin anew: everything counted is void, and the next start reads the inputs from where it is told.

Whatever moment this ends at, doing it again completes it. The states of the sources go first: from then on nothing new
is told under an old claim, and what is still on its way is below the floors that the aggregator's state is given after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamcal.parts.mark import MarkKey
from streamcal.parts.part import StoredKey
from streamcal.runtime.state_tools.store import StateStore
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
    FencedError
        A process of the group is at work.
    AppendUncertainError
        The broker did not answer; to be done again.
    """
    begin, at_ms = begin or {}, int(time.time() * 1000)
    told = {shard: list(_keys(store, shard)) for shard in range(store.shards)}
    highest: dict[int, int] = {}
    for keys in told.values():
        for source, claim, _, _ in keys:
            highest[source] = max(claim, highest.get(source, -1))
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


def _keys(store: StateStore, shard: int) -> Iterator[tuple[int, int, str | None, bytes]]:
    """Source, claim, model (None of a mark) and key of what stands on a partition of the counts topic; marks first."""
    standing: dict[bytes, bool] = {}
    for _, key, value in store.counts(shard):
        if key is not None:
            standing[key] = value is not None
    found = []
    for key in (key for key, stands in standing.items() if stands):
        mark = MarkKey.from_bytes(key)
        if mark is not None:
            yield mark.source, mark.claim, None, key
        else:
            stored = StoredKey.from_bytes(key)
            found.append((stored.source, stored.claim, stored.part.model, key))
    yield from found


def _take_back(store: StateStore, told: Mapping[int, list[tuple[int, int, str | None, bytes]]]) -> int:
    keys = {key: model for held in told.values() for _, _, model, key in held}
    for key, model in keys.items():
        store.topic.publish(model, key, None)
    if keys:
        store.topic.flush()
    return len(keys)
