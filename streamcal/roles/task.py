"""One partition's join made durable: read, commit, snapshot, take over.

A commit is one delta: the intakes since the last one, with the offsets they lead to. Applied after a snapshot they
lead to the same state, because the join is a function of what was read. The order is: delta acknowledged (and not
fenced), then parts and mark acknowledged on the counts topic, then the group's offsets, all before the next poll.
So a commit has three calls, `write`, `tell` and `settle`, and the tasks of a process wait together: the deltas of all
are on their way before the first of them is waited for. A snapshot is taken only after parts were acknowledged, so
whatever a takeover has to tell again is in its deltas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from streamcal.errors import StateFormatError
from streamcal.parts.mark import MarkKey, mark_of
from streamcal.parts.part import StoredKey
from streamcal.parts.source_counts import CountSettings, SourceCounts
from streamcal.state.about import check_followed
from streamcal.state.claimed_log import ClaimedLog, Restored
from streamcal.state.markers import SourceReset
from streamcal.state.packing import pack, unpack
from streamcal.state.trees import dump, load
from streamcal.stream.events import Record
from streamcal.stream.source import Intake, Source, SourceSettings

__all__ = ["CountsTopic", "Task"]

STATE_FORMAT: Final = 1
SNAPSHOT_AFTER: Final = 16_000_000
"""Some 300,000 rows, applied again in about a second; less is not worth a snapshot."""


class CountsTopic(Protocol):
    """Where parts and marks go."""

    def publish(self, model: str | None, key: bytes, value: bytes | None) -> None:
        """Append to the partition of a model, or to every partition (None); a value of None takes a key back."""
        ...

    def flush(self) -> None:
        """Return once everything published is acknowledged; raises AppendUncertainError if that is not known."""
        ...


class Task:
    """The source of one partition number under its claim.

    Guarantee: what was told of on the counts topic is what a takeover at any moment leads to, or less.

    Parameters
    ----------
    number : int
        Partition number.
    sources : SourceSettings
    counts : CountSettings
    log : ClaimedLog
    snapshot_after : int
        Bytes of deltas worth a snapshot; more where the last snapshot was larger.
    """

    def __init__(
        self,
        number: int,
        sources: SourceSettings,
        counts: CountSettings,
        log: ClaimedLog,
        *,
        snapshot_after: int = SNAPSHOT_AFTER,
    ) -> None:
        self.number = number
        self.source = Source(sources)
        self.counts = SourceCounts(counts, self.source.names, self.source.rules)
        self._log = log
        self._redo: list[Intake] = []
        self._told = False
        self._written = False
        self._delta_bytes = 0
        self._snapshot_bytes = 0
        self._snapshot_after = snapshot_after

    def take_over(self, about: bytes) -> Iterator[Restored]:
        """Claim the state and take it up; yields progress, done when exhausted.

        Raises
        ------
        StateLostError, StateFormatError, AppendUncertainError
            As `ClaimedLog.take_over`.
        ConfigChangeError
            The state was made under settings that ours cannot follow.
        """
        restored = Restored()
        for restored in self._log.take_over(about):
            yield restored
        check_followed(restored.about, about, where=self._log.where)
        for _ in self.take_up(restored):
            yield restored
        check_followed(restored.about, about, where=self._log.where, models=self.source.names.models)
        if restored.reset is not None and not restored.deltas:
            for topic, offset in SourceReset.from_bytes(restored.reset).begin.items():
                self.begin(topic, offset)

    def take_up(self, restored: Restored) -> Iterator[None]:
        """Become what was left; yields now and then, and counts down what remains. Raises StateFormatError."""
        if restored.snapshot is not None:
            self._load(unpack(restored.snapshot))
            self._snapshot_bytes = len(restored.snapshot)
        for place, delta in enumerate(restored.deltas):
            self._apply(unpack(delta))
            self._delta_bytes += len(delta)
            restored.remaining = len(restored.deltas) - place - 1
            yield

    @property
    def offsets(self) -> dict[str, int]:
        """Next record of each topic; a topic of which nothing was read is not there."""
        return self.source.offsets

    @property
    def changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._redo) or not self._told

    def read(self, topic: str, records: Sequence[Record], next_offset: int) -> Intake:
        """Join consecutive records of a topic."""
        return self._join(self.source.take_in(topic, records, next_offset))

    def begin(self, topic: str, offset: int) -> None:
        """Let a topic of which nothing was read begin at `offset`; durable with the next commit."""
        self._join(self.source.begin_in(topic, offset))

    def give_up(self, topic: str, offset: int) -> None:
        """Go on at `offset` without the records before it, which are gone; durable with the next commit."""
        self._join(self.source.give_up_in(topic, offset))

    def advance(self, topic: str, to_ms: int) -> None:
        """Move the watermark of an idle log."""
        self._join(self.source.advance_in(topic, to_ms))

    def write(self) -> bool:
        """Send everything read to our log; False where there is nothing to tell.

        Otherwise `tell` has to follow before anything else is read; until then nothing is known to be durable.

        Raises
        ------
        AppendUncertainError
            As `tell`.
        """
        if self._redo:
            delta = pack({"format": STATE_FORMAT, "intakes": [intake.to_tree() for intake in self._redo]})
            self._log.begin(delta)
            self._redo, self._told, self._written = [], False, True
            self._delta_bytes += len(delta)
        return not self._told

    def tell(self, topic: CountsTopic, lag: Mapping[str, int] | None = None) -> None:
        """Wait until what was written is durable, and ours still to write; then tell of it.

        Once the topic has flushed what it was told, `settle` has to follow.

        Parameters
        ----------
        topic : CountsTopic
        lag : mapping, optional
            Records of each topic not read yet, where known.

        Raises
        ------
        FencedError, AppendUncertainError
            This task is not ours any more, or may not be: drop it.
        """
        claim = self._log.claim
        parts = [  # made while what was written is on its way
            (key.model, StoredKey(key, self.number, claim).to_bytes(), part.to_bytes())
            for key, part in self.counts.changed()
        ]
        if self._written:
            self._written = False
            self._log.finish()
        for model, key, part in parts:
            topic.publish(model, key, part)
        mark = mark_of(self.source, lag or {})
        topic.publish(None, MarkKey(self.number, claim).to_bytes(), mark.to_bytes())

    def settle(self) -> None:
        """What was told is acknowledged: let go of it, and take a snapshot where it is worth one; raises as `tell`."""
        self.counts.settle(self.source.watermarks)
        self._told = True
        if self._delta_bytes >= max(self._snapshot_after, self._snapshot_bytes):
            self.snapshot()

    def snapshot(self) -> None:
        """Write the whole state down; only right after what was told is acknowledged."""
        state = pack({"format": STATE_FORMAT, "source": dump(self.source), "counts": dump(self.counts)})
        self._log.snapshot(state)
        self._delta_bytes, self._snapshot_bytes = 0, len(state)

    def _join(self, intake: Intake) -> Intake:
        self.source.apply(intake)
        self.counts.fold(self.source.take())
        self._redo.append(intake)
        return intake

    def _load(self, state: dict[str, Any]) -> None:
        _check_format(state)
        load(self.source, state["source"])
        load(self.counts, state["counts"])

    def _apply(self, delta: dict[str, Any]) -> None:
        _check_format(delta)
        for tree in delta["intakes"]:
            self.source.apply(Intake.from_tree(tree))
            self.counts.fold(self.source.take())


def _check_format(tree: dict[str, Any]) -> None:
    if tree.get("format") != STATE_FORMAT:
        raise StateFormatError(
            f"the state is in format {tree.get('format')!r}, this release knows {STATE_FORMAT}",
            hint="Run the release that wrote it, or rebuild the state.",
        )
