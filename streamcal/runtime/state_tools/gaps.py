"""Records that were deleted before they were read: found, and given up when a person says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamcal.errors import StreamcalError
from streamcal.parts.source_counts import CountSettings
from streamcal.roles.task import Task
from streamcal.runtime.state_tools.store import StateStore, left_in
from streamcal.state.claimed_log import ClaimedLog
from streamcal.state.markers import SourceReset
from streamcal.stream.events import TOPICS
from streamcal.stream.source import SourceSettings

__all__ = ["Gap", "accept_gaps", "find_gaps"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Records `from_offset` up to `to_offset` (excluded) of an input are gone."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int


def find_gaps(store: StateStore, sources: SourceSettings, counts: CountSettings) -> list[Gap]:
    """Gaps between what the state goes on with and what the inputs hold.

    Raises
    ------
    StreamcalError
        An input ends before that: it was made anew.
    """
    found: list[Gap] = []
    for number in range(store.sources):
        task = _task(store, number, sources, counts)
        restored = left_in(store, number)
        for _ in task.take_up(restored):
            pass
        begin = {} if restored.reset is None else SourceReset.from_bytes(restored.reset).begin
        found += _gaps_of(store, number, {**begin, **task.offsets})
    return found


def accept_gaps(store: StateStore, sources: SourceSettings, counts: CountSettings, about: bytes) -> list[Gap]:
    """Let the sources concerned go on after their gaps; noted in their states, and told to the aggregator.

    Raises
    ------
    StreamcalError
        As `find_gaps`; ConfigChangeError where the state was made under another configuration.
    FencedError
        A process of the group is at work.
    AppendUncertainError
        The broker did not answer; to be done again.
    """
    gaps = find_gaps(store, sources, counts)
    for number in sorted({gap.partition for gap in gaps}):
        task = _task(store, number, sources, counts)
        for _ in task.take_over(about):
            pass
        for gap in gaps:
            if gap.partition == number:
                task.give_up(gap.topic, gap.to_offset)
        task.write()
        task.tell(store.topic)
        store.topic.flush()
        task.settle()
    return gaps


def _task(store: StateStore, number: int, sources: SourceSettings, counts: CountSettings) -> Task:
    log = ClaimedLog(store.state(number), store.new_author(), where=f"state[{number}]")
    return Task(number, sources, counts, log)


def _gaps_of(store: StateStore, number: int, offsets: Mapping[str, int]) -> Iterator[Gap]:
    for topic in TOPICS:
        at = offsets.get(topic)
        if at is None:
            continue
        first, end = store.input_kept((topic, number))
        if at > end:
            raise StreamcalError(
                f"{topic}[{number}] ends at offset {end}, and the state goes on at {at}: the topic was made anew",
                hint="No gap can be accepted there: begin anew with `streamcal state reset`, or read the topics from "
                "their first records with `streamcal state rebuild --from earliest`.",
            )
        if at < first:
            yield Gap(topic, number, at, first)
