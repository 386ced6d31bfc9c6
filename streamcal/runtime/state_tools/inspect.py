"""What the state of a group is, partition by partition, read without claiming anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamcal.errors import StreamcalError
from streamcal.parts.mark import Mark, MarkKey
from streamcal.parts.source_counts import CountSettings
from streamcal.roles.aggregation import Aggregation
from streamcal.roles.task import Task
from streamcal.runtime.state_tools.store import StateStore, left_in
from streamcal.settings import EngineSettings
from streamcal.state.about import About, changes
from streamcal.state.claimed_log import ClaimedLog, Restored
from streamcal.state.markers import CountsReset, SourceReset
from streamcal.stream.events import TOPICS
from streamcal.stream.source import SourceSettings
from streamcal.stream.watermark import BEGINNING, END

__all__ = ["LogReport", "SourceReport", "StateReport", "inspect_state"]


@dataclass(slots=True)
class LogReport:
    """One partition of the state topic.

    Attributes
    ----------
    first, end : int
        Offsets it holds.
    claims : int
        That are kept.
    claim : mapping or None
        The last claim kept: its offset, who, since when, product version, configuration.
    snapshot_offset, snapshot_bytes : int or None
    deltas, delta_bytes : int
        Since the snapshot.
    ignored : int
        Records of others than the owner.
    reset : mapping or None
        The reset that is waiting for a start.
    changed : list of str
        Settings that differ from those the state was made under, and what that means.
    error : str or None
        Why it cannot be read.
    """

    first: int
    end: int
    claims: int = 0
    claim: Mapping[str, Any] | None = None
    snapshot_offset: int | None = None
    snapshot_bytes: int | None = None
    deltas: int = 0
    delta_bytes: int = 0
    ignored: int = 0
    reset: Mapping[str, Any] | None = None
    changed: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass(slots=True)
class SourceReport:
    """One partition of the inputs, as its state has it.

    Attributes
    ----------
    offsets, watermarks_ms : mapping of str to int
        By topic; absent where nothing was read.
    unread : mapping of str to int
        Records that the topic holds beyond the offset; negative where it ends before it.
    missing : mapping of str to int
        Records that were deleted before they were read.
    pending : int
        Predictions not yet released.
    bytes : int
        Of everything the join remembers.
    advances : int
        Recorded advances of silent logs.
    gaps : mapping of str to int
        Records that were given up.
    mark : mapping or None
        What the counts topic says of it: claim, offsets, watermarks.
    """

    partition: int
    log: LogReport
    offsets: Mapping[str, int] = field(default_factory=dict)
    watermarks_ms: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    bytes: int = 0
    advances: int = 0
    gaps: Mapping[str, int] = field(default_factory=dict)
    mark: Mapping[str, Any] | None = None


@dataclass(slots=True)
class AggregatorReport:
    """One partition of the counts topic, as its aggregator's state has it."""

    shard: int
    log: LogReport
    position: int | None = None
    counts_first: int = 0
    counts_end: int = 0
    event_time_ms: int | None = None
    maps: Mapping[str, int] = field(default_factory=dict)
    """Version in force by model."""


@dataclass(slots=True)
class StateReport:
    """All of it."""

    members: int
    sources: list[SourceReport]
    aggregators: list[AggregatorReport]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def inspect_state(
    store: StateStore, engine: EngineSettings, sources: SourceSettings, counts: CountSettings, about: bytes
) -> StateReport:
    """Read the state of all partitions; what cannot be read says so in its place.

    Parameters
    ----------
    store : StateStore
    engine, sources, counts
        How events are joined and counted, from the configuration.
    about : bytes
        What a claim of ours would say.
    """
    marks = _marks(store)
    return StateReport(
        store.members(),
        [_source(store, n, sources, counts, about, marks.get(n)) for n in range(store.sources)],
        [_aggregator(store, shard, engine, counts, about) for shard in range(store.shards)],
    )


def _source(
    store: StateStore,
    number: int,
    sources: SourceSettings,
    counts: CountSettings,
    about: bytes,
    mark: tuple[MarkKey, Mark] | None,
) -> SourceReport:
    report = SourceReport(number, LogReport(*store.state_kept(number)))
    if mark is not None:
        key, held = mark
        report.mark = {"claim": key.claim, "offsets": dict(held.offsets), "watermarks_ms": _times(held.watermarks)}
    task = Task(number, sources, counts, ClaimedLog(store.state(number), b""))
    try:
        restored = left_in(store, number)
        _describe(report.log, restored, about)
        if restored.reset is not None:
            report.log.reset = {"begin": dict(SourceReset.from_bytes(restored.reset).begin)}
        for _ in task.take_up(restored):
            pass
    except StreamcalError as error:
        report.log.error = str(error)
        return report
    source = task.source
    kept = {topic: store.input_kept((topic, number)) for topic in source.offsets}
    report.offsets, report.watermarks_ms = dict(source.offsets), _times(source.watermarks)
    report.unread = {topic: kept[topic][1] - at for topic, at in source.offsets.items()}
    gone = {topic: kept[topic][0] - at for topic, at in source.offsets.items()}
    report.missing = {topic: lost for topic, lost in gone.items() if lost > 0}
    report.pending, report.bytes = source.pending, source.nbytes
    report.advances = sum(len(source.advances.of(topic)) for topic in TOPICS)
    report.gaps = {topic: lost for topic, (lost, _) in source.gaps.items()}
    return report


def _aggregator(
    store: StateStore, shard: int, engine: EngineSettings, counts: CountSettings, about: bytes
) -> AggregatorReport:
    number = store.sources + shard
    report = AggregatorReport(shard, LogReport(*store.state_kept(number)))
    report.counts_first, report.counts_end = store.counts_kept(shard)
    held = Aggregation(engine, counts, store.sources, ClaimedLog(store.state(number), b""))
    try:
        restored = left_in(store, number)
        _describe(report.log, restored, about)
        if restored.reset is not None:
            report.log.reset = {"position": CountsReset.from_bytes(restored.reset).position}
        held.take_up(restored)
    except StreamcalError as error:
        report.log.error = str(error)
        return report
    report.position, report.event_time_ms = held.position, held.aggregator.event_time_ms
    documents = {loop.name: loop.champion.document for loop in held.aggregator.loops.values()}
    report.maps = {name: document.version for name, document in documents.items() if document is not None}
    return report


def _describe(report: LogReport, restored: Restored, about: bytes) -> None:
    report.claims, report.ignored = len(restored.claims), restored.ignored
    offset, said = restored.claims[-1] if restored.claims else (None, restored.about)
    author = None if said is None else About.from_bytes(said)
    if author is not None:
        report.claim = {
            "offset": offset,
            "number": None if offset is None else restored.base + offset,
            "who": author.who,
            "since_ms": author.started_ms,
            "version": author.version,
            "config_hash": author.config_hash,
        }
    if restored.snapshot is not None:
        report.snapshot_offset, report.snapshot_bytes = restored.snapshot_at, len(restored.snapshot)
    report.deltas, report.delta_bytes = len(restored.deltas), sum(map(len, restored.deltas))
    before = None if restored.about is None else About.from_bytes(restored.about)
    now = About.from_bytes(about)
    if before is not None and now is not None:
        report.changed = [f"{change.key} ({change.rule.verdict})" for change in changes(before, now)]


def _marks(store: StateStore) -> dict[int, tuple[MarkKey, Mark]]:
    """The mark of the highest claim of each source."""
    found: dict[int, tuple[MarkKey, Mark]] = {}
    for shard in range(store.shards):
        standing: dict[MarkKey, bytes | None] = {}
        for _, key, value in store.counts(shard):
            mark = None if key is None else MarkKey.from_bytes(key)
            if mark is not None:
                standing[mark] = value
        for mark, value in standing.items():
            if value is not None and (mark.source not in found or mark.claim > found[mark.source][0].claim):
                found[mark.source] = (mark, Mark.from_bytes(value))
    return found


def _times(watermarks: tuple[int, int]) -> dict[str, int]:
    pairs = zip(TOPICS, watermarks, strict=True)
    return {topic: value for topic, value in pairs if BEGINNING < value < END}
