"""Monitors on a real broker with a disturbed stream, and everything that must be true of them at the end.

At the end the counts of every pane, as a fresh reader finds them on the compacted topic, and the counters equal an
independent recount to the bit; so do the counts a daemon serves. Figures, alarms and maps equal those of one engine in
memory that was handed the same logs and to which nothing happened.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
from daemon_process import Daemon, Samples, wait_until
from kafka import KafkaConsumer, TopicPartition
from kafka_broker import create_topics
from prometheus_client.parser import text_string_to_metric_families
from recount import COUNTERS, Recount, recount
from recount_counts import cut_label, segment_key
from recount_events import Event
from topic_dump import read_all
from torture.counted_cells import BINS, KINDS, Naming, counted_afresh, latest_marks, recounted
from torture.disturbed_streams import Feeder, StreamPlan, closing, disturbed_events, shares

from streamcal.engine import Engine, Slice
from streamcal.maps.document import decode
from streamcal.runtime.config import load_config
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.wiring import engine_settings
from streamcal.serve.exporter import render
from streamcal.serve.metrics import ExportSettings

__all__ = ["CUTS", "Member", "MonitorArena", "monitor_config"]

CUTS = (("country",), ("country", "device"))
WINDOW = "10d"
SMALL = {"snapshot_after": 60_000, "chunk_bytes": 20_000}
"""Sizes with which a short run has many snapshots, of many chunks each."""
PROCESS_METRICS = ("streamcal_ready", "streamcal_build_info", "streamcal_commit_duration", "streamcal_consumer_lag")
LOCAL_METRICS = (
    *(*PROCESS_METRICS, "streamcal_pending_bytes", "streamcal_partitioner"),
    "streamcal_change_triggers",  # of river's objects, which begin again with a process; they promise nothing
)
"""True of one process and not of the stream."""
LOCAL_VIEWS = {"sequence", "changes"}
"""The same of the pages; `changes` are those of the change triggers."""
BATCH = 2000


def monitor_config(bootstrap: str, names: Mapping[str, str], plan: StreamPlan) -> dict[str, Any]:
    """A configuration whose every topic has the name of the run."""
    return {
        "kafka": {
            "bootstrap_servers": bootstrap,
            "group_id": names["group"],
            "start_from": "earliest",
            "commit_interval": "200ms",
            "consumer": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500, "max_poll_records": 500},
        },
        "topics": {
            "predictions": names["p"],
            "outcomes": names["o"],
            **{role: f"{role}-{names['group']}" for role in ("maps", "counts", "state")},
        },
        "join": {
            "labels": plan.labels,
            "horizon": f"{plan.horizon_ms}ms",
            "out_of_order": f"{plan.out_of_order_ms}ms",
            # What is idle depends on the wall clock; no two runs would decide alike.
            "idle_timeout": "12h",
        },
        "windows": {"lengths": ["30m", WINDOW], "time": "prediction"},
        "segments": {"cuts": [list(cut) for cut in CUTS], "max_segments": 200},
        "refit": {"mode": "auto", "every": "5m", "fit_window": "2h", "min_count": 50, "segments": list(CUTS[-1])},
    }


class Member(Daemon):
    """A monitor that may have a fault in it; see `torture.faulty_monitor`.

    Parameters
    ----------
    config : mapping
    folder : Path
    options : mapping
        Of the faulty monitor.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path, options: Mapping[str, Any]) -> None:
        super().__init__(config, folder)
        program = Path(__file__).with_name("faulty_monitor.py")
        self._command = [sys.executable, str(program), str(self.path), json.dumps(options)]
        self.meant = "at" in options
        """Whether it has a fault in it."""
        self.expected = False
        """Whether its end was meant."""

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.process.send_signal(signal.SIGCONT)
        super().__exit__()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def fault(self) -> str | None:
        """The point at which its fault struck."""
        struck = self.event("fault")
        return None if struck is None else str(struck["at"])

    @property
    def aggregates(self) -> bool:
        """Whether the last assignment gave it the counts topic."""
        assigned = self.event("partitions assigned")
        return assigned is not None and bool(assigned["aggregating"])

    def kill(self) -> None:
        """SIGKILL."""
        self.expected = True
        self.process.kill()
        self.process.wait()


class MonitorArena:
    """Topics with a feeder, and the members of one group; leaving the context ends all processes.

    Parameters
    ----------
    bootstrap : str
    folder : Path
    plan : StreamPlan
    sizes : mapping
        Of the state's records and snapshots.

    Attributes
    ----------
    hit : Counter
        What happened to members, by kind.
    """

    def __init__(self, bootstrap: str, folder: Path, plan: StreamPlan, sizes: Mapping[str, int] | None = None) -> None:
        run = uuid4().hex[:10]
        self.bootstrap, self.folder, self.plan = bootstrap, folder, plan
        self.names = {"p": f"predictions-{run}", "o": f"outcomes-{run}", "group": f"group-{run}"}
        self.config = monitor_config(bootstrap, self.names, plan)
        self._sizes = SMALL if sizes is None else sizes
        create_topics(bootstrap, {self.names[topic]: plan.partitions for topic in "po"})
        create_topics(bootstrap, {self.config["topics"]["counts"]: 1}, EAGER_COMPACTION)
        self.feeder = Feeder(bootstrap, {topic: self.names[topic] for topic in "po"}, plan)
        self.members: list[Member] = []
        self.hit: Counter[str] = Counter()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.feeder)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def member(self, name: str | None = None, fault: Mapping[str, Any] | None = None) -> Member:
        """Start a member; `name` makes it a static one, whose successor need not wait for a session to end."""
        config = {**self.config, "kafka": {**self.config["kafka"], **({"group_instance_id": name} if name else {})}}
        folder = self.folder / f"{len(self.members)}-{name or 'member'}"
        member = self._stack.enter_context(Member(config, folder, {**self._sizes, **(fault or {})}))
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Member]:
        """Members that run, or are stopped."""
        return [member for member in self.members if member.alive]

    def check(self) -> None:
        """Fail where a member ended that nobody meant to end."""
        for member in self.members:
            if not member.alive and not member.expected and member.fault is None:
                raise AssertionError(f"{member.path}: ended with {member.process.returncode}: {member.errors[-3000:]}")

    def position(self) -> int:
        """Input records the group has committed."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.names["group"], enable_auto_commit=False
        )
        try:
            return sum(consumer.committed(part) or 0 for part in self._inputs())
        finally:
            consumer.close()

    def wait_work(self, records: int = 1, timeout_s: float = 90) -> None:
        """Wait until the group has gone on by some input records."""
        goal = self.position() + records

        def reached() -> bool:
            self.check()
            return self.position() >= goal

        wait_until(reached, timeout_s)

    def finish(self, timeout_s: float = 240) -> Verdict:
        """Send what is left, let the members read it all, and compare."""
        self.feeder.send(1.0, 0.0)
        self.feeder.wait()
        events = [*disturbed_events(self.plan), *closing(self.plan)]
        _produce(self.bootstrap, self.names, events[-2 * self.plan.partitions :])
        end_ms = events[-1][2]["ts"] - self.plan.out_of_order_ms

        def settled() -> bool:
            self.check()
            return any(member.aggregates and _reached(member, self.plan.partitions, end_ms) for member in self.alive)

        wait_until(settled, timeout_s)
        return Verdict(self, events, next(member for member in self.alive if _reached(member, 1, end_ms)))

    def stop(self) -> None:
        """SIGTERM to all that run."""
        for member in self.alive:
            member.expected = True
            assert member.terminate() == 0, member.errors
            assert member.errors == ""

    def _inputs(self) -> list[Any]:
        return [TopicPartition(self.names[topic], n) for topic in "po" for n in range(self.plan.partitions)]


EAGER_COMPACTION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.bytes": "1048576",
    "segment.ms": "1000",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "100",
}
"""Nothing but the newest segment is left as it was written."""


def _produce(bootstrap: str, names: Mapping[str, str], events: Sequence[Event]) -> None:
    from event_streams import produce_events

    produce_events(bootstrap, dict(names), events)


def _reached(member: Member, partitions: int, time_ms: int) -> bool:
    """Whether what a member serves has come to `time_ms` in every log."""
    with contextlib.suppress(OSError):
        found = [v for (name, _), v in member.samples().items() if name == "streamcal_watermark_timestamp_seconds"]
        return len(found) >= 2 * partitions and all(value * 1000 >= time_ms for value in found)
    return False


class Verdict:
    """What a finished arena is compared with.

    Parameters
    ----------
    arena : MonitorArena
    events : sequence of Event
        Everything that was sent.
    aggregator : Member
        The one that serves.
    """

    def __init__(self, arena: MonitorArena, events: Sequence[Event], aggregator: Member) -> None:
        self.arena, self.events = arena, events
        self.truth: Recount = recount(events, arena.plan.rules)
        self.samples = aggregator.samples()
        self.served = aggregator.counts()
        self.maps = {model: json.loads(aggregator.get(f"/api/v1/maps?model={model}")) for model in ("a", "b")}
        self.models = {model: json.loads(aggregator.get(f"/api/v1/model?model={model}")) for model in ("a", "b")}
        self._naming = Naming()
        self._true = recounted(self.truth, CUTS, self._naming, by_outcome_time=False)
        self._cuts = ((), *CUTS)

    @property
    def shares(self) -> dict[str, float]:
        """How disturbed the stream was."""
        return shares(self.events, self.truth, self.arena.plan.pairs)

    def check_all(self) -> None:
        """Everything below; the arena's members are ended in between."""
        self.check_disturbed()
        self.check_served_counts()
        self.check_counters()
        self.check_like_an_undisturbed_run()
        self.arena.stop()
        self.check_counts_topic()

    def check_disturbed(self) -> None:
        """At least one in twenty of every kind."""
        assert all(share >= 0.05 for share in self.shares.values()), self.shares

    def check_served_counts(self) -> None:
        """Bins the aggregator serves equal the recount's, summed over all panes."""
        expected: dict[tuple[str, str, str], dict[int, list[int]]] = {}
        names = {number: key for key, number in self._naming.numbers.items()}
        for (series, code), columns in self._true.totals().items():
            model, cut, values = names[series]
            segments = dict(zip(self._cuts[cut], values, strict=True))
            place = (model, segment_key(self._cuts[cut], segments), KINDS[code // BINS])
            if columns[0]:
                expected.setdefault(place, {})[code % BINS] = columns
        found = {
            (model, segment, kind): {int(b): columns for b, columns in bins.items()}
            for model, held in self.served.items()
            for segment, entry in held["segments"].items()
            for kind, bins in entry["windows"].get(WINDOW, {}).items()
            if bins
        }
        assert found.keys() == expected.keys()
        wrong = [place for place, bins in expected.items() if found[place] != bins]
        assert not wrong, f"{len(wrong)} of {len(expected)} segments differ: {wrong[:5]}"
        assert {entry["cut"] for held in self.served.values() for entry in held["segments"].values()} == {
            cut_label(cut) for cut in self._cuts
        }

    def check_counters(self) -> None:
        """Counters in the marks on the topic and in the metrics equal the recount's."""
        totals: Counter[str] = Counter()
        for mark in latest_marks(self._counts_records()).values():
            totals.update(mark.counters)
            totals.update({name: sum(counts) for name, counts in mark.by_model.items()})
        assert {name: totals[name] for name in COUNTERS} == {name: self.truth.counters[name] for name in COUNTERS}
        assert self.samples["streamcal_pending_predictions", frozenset()] == self.truth.pending

    def check_counts_topic(self) -> None:
        """A fresh reader finds the recount's counts in every pane, before and after compaction."""
        records = self._counts_records()
        assert counted_afresh(records, self._naming).differences(self._true) == 0
        compacted = self._compacted()
        assert counted_afresh(compacted, self._naming).differences(self._true) == 0

    def check_like_an_undisturbed_run(self) -> None:
        """Figures, alarms, evidence and map decisions equal those of an engine that nothing happened to."""
        engine, documents = undisturbed(self.arena.config, self.arena.folder, self.events, self.arena.plan.partitions)
        found = read_all(self.arena.bootstrap, self.arena.config["topics"]["maps"])
        # The maps in force are published again at a takeover: the same bytes under the same version.
        published = dict.fromkeys((record.key.decode(), record.value) for record in found)
        # Of models that decide at the same moment, the one heard of first publishes first: each has its own order.
        ours, theirs = (sorted(maps, key=lambda one: one[0]) for maps in (published, documents))
        assert list(map(_told, ours)) == list(map(_told, theirs))
        assert ours == theirs
        self.arena.hit["maps published"] = len(documents)
        self.arena.hit["maps corrected by segment"] = sum(bool(decode(data).segments) for _, data in documents)
        self.arena.hit["alarms raised"] = sum(len(watch.alarms) for watch in engine.watches.values())
        snapshot = engine.snapshot()
        expected = _stream_samples(render(snapshot, ExportSettings()).decode())
        shown = {key: value for key, value in self.samples.items() if not key[0].startswith(LOCAL_METRICS)}
        wrong = {
            key: (shown.get(key), expected.get(key))
            for key in sorted(shown.keys() | expected.keys(), key=str)
            if not _same(shown.get(key), expected.get(key))
        }
        assert not wrong, f"{len(wrong)} samples (ours, undisturbed): {dict(list(wrong.items())[:8])}"
        self._check_views(snapshot)

    def _check_views(self, snapshot: Any) -> None:
        from streamcal.serve.view import find_model, model_view
        from streamcal.serve.view_maps import maps_view

        for name in ("a", "b"):
            model = find_model(snapshot, name)
            assert model is not None
            for ours, expected in (
                (self.maps[name], maps_view(snapshot, model)),
                (self.models[name], model_view(snapshot, model)),
            ):
                theirs = json.loads(json.dumps(expected))
                wrong = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
                told = {key: (ours.get(key), theirs.get(key)) for key in wrong - LOCAL_VIEWS}
                assert not told, f"model {name} (ours, undisturbed): {told}"

    def _counts_records(self) -> list[Any]:
        return read_all(self.arena.bootstrap, self.arena.config["topics"]["counts"])

    def _compacted(self, patience_s: float = 30) -> list[Any]:
        """Records once the broker has compacted the older half; of a short log the newest segment may be most."""
        found: list[Any] = []

        def done() -> bool:
            found[:] = self._counts_records()
            keys = [record.key for record in found if record.offset < found[-1].offset // 2]
            return len(set(keys)) == len(keys)

        with contextlib.suppress(TimeoutError):
            wait_until(done, patience_s)
        self.arena.hit["records compacted away"] = found[-1].offset + 1 - len(found)
        return found


def undisturbed(
    config: Mapping[str, Any], folder: Path, events: Sequence[Event], partitions: int
) -> tuple[Engine, list[tuple[str, bytes]]]:
    """One engine in memory that reads the same logs; and every map it published, in order."""
    path = folder / "undisturbed.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    engine = Engine(engine_settings(load_config(path, environ={}, require_kafka=True)), range(partitions))
    role, documents = {"p": "predictions", "o": "outcomes"}, []
    for start in range(0, len(events), BATCH):
        held: dict[tuple[str, int], list[LogRecord]] = {}
        places: dict[tuple[str, int], list[int]] = {}
        for place, (topic, partition, value, at) in enumerate(events[start : start + BATCH]):
            record = LogRecord(json.dumps(value).encode(), timestamp=at, key=b"-")
            held.setdefault((role[topic], partition), []).append(record)
            places.setdefault((role[topic], partition), []).append(place)
        commands = engine.handle([Slice(*log, records, np.array(places[log])) for log, records in held.items()])
        documents += [(command.key, command.document) for command in commands]
    return engine, documents


def _told(published: tuple[str, bytes]) -> Any:
    document = decode(published[1])
    return (
        published[0],
        document.version,
        document.at_ms,
        document.family,
        document.parameters,
        document.segments,
        document.evidence,
    )


def _stream_samples(text: str) -> Samples:
    families = text_string_to_metric_families(text)
    found = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
    return {key: value for key, value in found.items() if not key[0].startswith(LOCAL_METRICS)}


def _same(ours: float | None, theirs: float | None) -> bool:
    return ours == theirs or (ours is not None and theirs is not None and math.isnan(ours) and math.isnan(theirs))
