"""`streamcal transform` as a process of its own, the topics around it, and what it should have written."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

from daemon_process import wait_until
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt

__all__ = [
    "Raw",
    "TransformProcess",
    "assert_each_once_in_order",
    "group_position",
    "ids_of",
    "produce_raw",
    "publish_map",
    "random_raw",
    "served_by_platt",
    "stored_records",
    "transform_config",
]

START_MS = 1_700_000_000_000
SLOPE, INTERCEPT = 0.7, -0.4


class Raw(NamedTuple):
    """One record for the input topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


def random_raw(count: int, partitions: int, *, seed: int, first: int = 0) -> list[Raw]:
    """Predictions with raw scores, numbered in the order of their partitions."""
    draw = random.Random(seed)
    made = []
    for number in range(first, first + count):
        partition = draw.randrange(partitions)
        event = {
            "id": f"id-{number}",
            "ts": START_MS + number,
            "score": draw.random(),
            "model": draw.choice(("a", "b")),
            "note": {"unknown": ["ä", draw.random()], "big": 10**30},
        }
        value = json.dumps(event).encode()
        made.append(Raw(partition, f"k{number % 7}".encode(), value, (("trace", b"%d" % number),), START_MS + number))
    return made


def produce_raw(bootstrap: str, topic: str, records: Iterable[Raw]) -> None:
    """Send each record to its partition and wait until all are stored."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, batch_size=200_000)
    try:
        sent = [
            producer.send(topic, value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp)
            for partition, key, value, headers, timestamp in records
        ]
        producer.flush()
        for one in sent:
            one.get(timeout=60)
    finally:
        producer.close()


def publish_map(bootstrap: str, topic: str, model: str, version: int) -> None:
    """Put a Platt map in force for `model`."""
    document = encode(new_document(model, version, Platt(SLOPE, INTERCEPT), at_ms=0))
    produce_raw(bootstrap, topic, [Raw(0, model.encode(), document, (), START_MS)])


def served_by_platt(score: float) -> float:
    """What the map of `publish_map` makes of a raw score, by the textbook."""
    clipped = min(max(score, 1e-7), 1 - 1e-7)
    return 1 / (1 + math.exp(-(SLOPE * math.log(clipped / (1 - clipped)) + INTERCEPT)))


def transform_config(bootstrap: str, input_: str, output: str, maps: str, **transform: Any) -> dict[str, Any]:
    """A configuration with names of its own and a quick session."""
    return {
        "kafka": {
            "bootstrap_servers": bootstrap,
            "group_id": f"group-{uuid4().hex[:10]}",
            "start_from": "earliest",
            "consumer": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500},
        },
        "topics": {"maps": maps},
        "transform": {"input": input_, "output": output, "instance_id": "one", **transform},
    }


def stored_records(bootstrap: str, topic: str, partitions: int, *, committed: bool = True) -> dict[int, list[Any]]:
    """Every record by partition, those of aborted transactions on request; whoever writes has stopped."""
    parts = [TopicPartition(topic, number) for number in range(partitions)]
    # A writer that was killed and has no successor leaves a transaction that the broker ends after a while.
    wait_until(lambda: log_ends(bootstrap, parts, "read_committed") == log_ends(bootstrap, parts, "read_uncommitted"))
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
        # By position: a log may end in markers and aborted records.
        while any(consumer.position(part) < ends[part] for part in parts):
            for part, records in consumer.poll(timeout_ms=500, max_records=50_000).items():
                found[part.partition] += records
        return found
    finally:
        consumer.close()


def log_ends(bootstrap: str, parts: Sequence[TopicPartition], isolation: str) -> dict[TopicPartition, int]:
    """Where readers of this isolation come to the end."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    try:
        ends: dict[TopicPartition, int] = consumer.end_offsets(parts)
        return ends
    finally:
        consumer.close()


def ids_of(records: Sequence[Any]) -> list[str]:
    """The ids of predictions, in order."""
    return [json.loads(record.value)["id"] for record in records]


def assert_each_once_in_order(bootstrap: str, output: str, partitions: int, sent: Sequence[Raw]) -> None:
    """The output holds every input, once, in the order of its partition, served."""
    found = stored_records(bootstrap, output, partitions)
    for number in range(partitions):
        wanted = [json.loads(raw.value or b"")["id"] for raw in sent if raw.partition == number]
        got = ids_of(found[number])
        assert len(got) == len(wanted), f"partition {number}: {len(got)} records for {len(wanted)}"
        assert got == wanted, f"partition {number} is out of order"
        assert all(b'"raw_score"' in record.value for record in found[number])


class TransformProcess:
    """A running command; leaving the context ends it.

    Parameters
    ----------
    config : mapping
        Written as the configuration file (JSON is YAML).
    folder : Path
        For configuration and output.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "config.yaml"
        self._config.write_text(json.dumps(config), encoding="utf-8")
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, as a supervisor would after an exit; output is appended."""
        with self._out.open("ab") as out, self._err.open("ab") as err:
            command = [sys.executable, "-m", "streamcal", "transform", "--config", str(self._config)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def logged(self) -> list[dict[str, Any]]:
        """Every whole log line so far."""
        lines = self._out.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    @property
    def errors(self) -> str:
        """What was written to standard error."""
        return self._err.read_text(encoding="utf-8")

    def event(self, name: str) -> dict[str, Any] | None:
        """The last log line of an event."""
        return next((line for line in reversed(self.logged) if line["event"] == name), None)

    def send(self, number: signal.Signals) -> None:
        """Signal it."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def wait(self, timeout_s: float = 90.0) -> int:
        """Its exit code, once it ends."""
        return self.process.wait(timeout=timeout_s)

    def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def wait_assigned(self) -> None:
        """Wait until it has partitions."""
        wait_until(lambda: self.process.poll() is not None or self.event("partitions assigned") is not None)
        assert self.process.poll() is None, self.errors


def group_position(bootstrap: str, config: Mapping[str, Any], partitions: int) -> int:
    """Sum of the offsets the command's group has committed."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{config['kafka']['group_id']}-transform",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    try:
        parts = [TopicPartition(config["transform"]["input"], number) for number in range(partitions)]
        return sum(consumer.committed(part) or 0 for part in parts)
    finally:
        consumer.close()
