"""The aggregator made durable: what all sources told goes in, maps and pictures come out.

It reads the counts topic in order and remembers how far. Its decisions are a function of what is final there, so that
whoever takes over from the last snapshot decides the same again. A decision is written down (a snapshot) before its map
is published; what was decided and may not have been published, and the maps in force, are published at a takeover: so a
map that anyone saw is never forgotten, and every map that was decided is on the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from streamcal.aggregator import Aggregator
from streamcal.errors import MapDocumentError, StateFormatError
from streamcal.maps import saved  # noqa: F401, maps and documents become values of states
from streamcal.maps.document import decode
from streamcal.maps.loop import MapRequest, PublishMap
from streamcal.maps.wanted import Attempted
from streamcal.parts.mark import Mark, MarkKey
from streamcal.parts.merge import Merge
from streamcal.parts.part import Part, StoredKey
from streamcal.parts.source_counts import CountSettings
from streamcal.roles.task import SNAPSHOT_AFTER, CountsTopic
from streamcal.settings import EngineSettings
from streamcal.snapshot import Snapshot
from streamcal.state.about import check_followed
from streamcal.state.claimed_log import ClaimedLog, Restored
from streamcal.state.markers import CountsReset
from streamcal.state.packing import pack, unpack
from streamcal.state.reading import FOREIGN_RECORD
from streamcal.state.trees import dump, load
from streamcal.stream.events import Names
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import BEGINNING

__all__ = ["Aggregation", "CountsRecord"]

STATE_FORMAT: Final = 1
_WORTH: Final = 8
"""Parts are read again eight times as fast as intakes are joined again, by the byte."""

CountsRecord = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record of the counts topic."""
Publish = Callable[[Sequence[PublishMap]], None]
"""Appends map documents to the maps topic; returns once they are acknowledged."""


class Aggregation:
    """One partition of the counts topic under its claim.

    Parameters
    ----------
    settings : EngineSettings
    counts : CountSettings
    sources : int
        Partitions of the input topics.
    log : ClaimedLog
    snapshot_after : int
        Eight times as many bytes of parts and marks are worth a snapshot; more where the last snapshot was larger.

    Attributes
    ----------
    position : int or None
        Offset of the next record of the counts topic; None: the first that is kept.
    names, tally, aggregator
    """

    STATE = ("position", "aggregator", "_merge", "_unpublished")
    ADDED = ("_unpublished",)

    def __init__(
        self,
        settings: EngineSettings,
        counts: CountSettings,
        sources: int,
        log: ClaimedLog,
        *,
        snapshot_after: int = SNAPSHOT_AFTER,
    ) -> None:
        self.names = Names(settings.dimensions)
        self.tally = Tally()
        self.aggregator = Aggregator(settings, self.names, self.tally)
        self._history_ms = settings.history_ms
        self.position: int | None = None
        self._merge = Merge(self.aggregator, counts, sources, self.tally)
        self._log = log
        self._read_bytes = 0
        self._snapshot_bytes = 0
        self._snapshot_after = snapshot_after
        self._fresh = True
        self._asked = False
        self._unpublished: list[PublishMap] = []

    def take_over(self, about: bytes) -> Iterator[Restored]:
        """Claim the state and take it up; yields progress. Raises as `Task.take_over`."""
        restored = Restored()
        for restored in self._log.take_over(about):
            yield restored
        check_followed(restored.about, about, where=self._log.where)
        self.take_up(restored)
        check_followed(restored.about, about, where=self._log.where, models=self.names.models)

    def take_up(self, restored: Restored) -> None:
        """Become what was left. Raises StateFormatError."""
        if restored.reset is not None:
            reset = CountsReset.from_bytes(restored.reset)
            self.position = reset.position
            self._merge.begin_after(reset.floors)
        if restored.snapshot is not None:
            state = unpack(restored.snapshot)
            if state.get("format") != STATE_FORMAT:
                raise StateFormatError(
                    f"the state is in format {state.get('format')!r}, this release knows {STATE_FORMAT}",
                    hint="Run the release that wrote it, or rebuild the state.",
                )
            load(self, state["state"])
            self._snapshot_bytes = len(restored.snapshot)
            self._fresh = False

    @property
    def fresh(self) -> bool:
        """Whether nobody aggregated before: then the maps published are to be adopted."""
        return self._fresh

    def adopt(self, published: Mapping[str, Sequence[bytes]]) -> None:
        """Go on from maps that were published before anybody aggregated; see `Aggregator.adopt`."""
        self.aggregator.adopt(published)

    def take(self, records: Iterable[CountsRecord]) -> None:
        """Take in records of the counts topic, in order.

        Raises
        ------
        StateFormatError
            One is of a later release, or of none.
        """
        for offset, key, value in records:
            if key is not None and value is not None:
                try:
                    self._take(key, value)
                except StateFormatError as error:
                    where = f"topic of counts, offset {offset}"
                    raise StateFormatError(error.what, where=where, hint=FOREIGN_RECORD) from error
            self.position = offset + 1

    def _take(self, key: bytes, value: bytes) -> None:
        self._read_bytes += len(value)
        marked = MarkKey.from_bytes(key)
        if marked is None:
            self._merge.part(StoredKey.from_bytes(key), Part.from_bytes(value))
        else:
            self._merge.mark(marked, Mark.from_bytes(value))

    def ask(self, model: str, request: MapRequest) -> Attempted:
        """Do what a person asks; durable and published with the next `settle`. Raises as `Aggregator.ask`."""
        asked = self.aggregator.ask(model, request)
        self._asked = True
        return asked

    @property
    def waiting(self) -> bool:
        """Whether something that was asked is not durable yet."""
        return self._asked

    def follow(self) -> None:
        """Let everything follow from what was taken in; what is decided waits for `settle`."""
        self._merge.settle()

    def settle(self, publish: Publish, topic: CountsTopic) -> None:
        """Make what was decided durable, then let it be seen.

        Raises
        ------
        FencedError, AppendUncertainError
            This role is not ours any more, or may not be: drop it.
        """
        self._unpublished += self.aggregator.take_commands()
        worth = self._read_bytes >= max(_WORTH * self._snapshot_after, self._snapshot_bytes)
        if self._unpublished or self._asked or worth:
            self.snapshot()
            # Only what no takeover will read again may go, and a takeover goes on from the snapshot.
            self._take_back(topic)
        if self._unpublished:
            publish(self._unpublished)
            self._unpublished = []

    def republish(self, publish: Publish) -> None:
        """Publish what an owner before may have died over, and the maps in force once more."""
        if commands := [*self._unpublished, *self._standing()]:
            publish(commands)
            self._unpublished = []

    def outbid(self, newest: Mapping[str, bytes | None], publish: Publish) -> None:
        """Publish maps in force where `newest` (by key) is an older one, or none that can be read.

        A record without a value stays: somebody has withdrawn the map.
        """
        standing = self._standing()
        if behind := [command for command in standing if _is_older(newest.get(command.key), command.document)]:
            publish(behind)

    def _standing(self) -> list[PublishMap]:
        return [command for loop in self.aggregator.loops.values() for command in loop.standing()]

    def snapshot(self) -> None:
        """Write the whole state down."""
        state = pack({"format": STATE_FORMAT, "state": dump(self)})
        self._log.snapshot(state)
        self._read_bytes, self._snapshot_bytes, self._asked = 0, len(state), False

    def picture(self) -> Snapshot:
        """The immutable picture of this moment."""
        marks = self._merge.marks
        picture = self.aggregator.snapshot(
            outcomes_ms=min((mark.watermarks[1] for mark in marks.values()), default=BEGINNING),
            watermarks=dict(self._merge.watermarks()),
            lag={(topic, source): n for source, mark in marks.items() for topic, n in mark.lag.items()},
            pending_bytes=sum(mark.pending_bytes for mark in marks.values()),
        )
        incomplete = self._incomplete()
        return replace(picture, incomplete=incomplete) if incomplete else picture

    def _incomplete(self) -> dict[tuple[str, int], int]:
        """Records that were given up, as long as a window may lack them."""
        at_ms = self.aggregator.event_time_ms
        horizon_ms = max(
            (self.aggregator.rules(model).horizon_ms for model in range(len(self.names.models))), default=0
        )
        seen_ms = BEGINNING if at_ms is None else at_ms - horizon_ms - self._history_ms
        return {
            (topic, source): lost
            for source, mark in sorted(self._merge.marks.items())
            for topic, lost, until_ms in mark.gaps
            if until_ms >= seen_ms
        }

    def _take_back(self, topic: CountsTopic) -> None:
        stale: list[Any] = self._merge.take_stale()
        for key in stale:
            topic.publish(_model_of(key), key, None)
        if stale:
            topic.flush()


def _is_older(value: bytes | None, document: bytes) -> bool:
    if value is None:
        return False
    try:
        return decode(value).version < decode(document).version
    except MapDocumentError:
        return True


def _model_of(key: bytes) -> str | None:
    return None if MarkKey.from_bytes(key) is not None else StoredKey.from_bytes(key).part.model
