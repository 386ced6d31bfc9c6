"""`streamcal run` on random and mutated messages: it stays up, and counts each message once.

Whole messages are random bytes, JSON of any kind, sound events, or sound events with fields replaced, bytes changed,
cut out, doubled or swapped; some have no value. In the middle the monitor is killed and started again. At the end every
message is accounted for: accepted, duplicate, late, ignored (no value), or rejected under one of the known reasons; and
the group has read to the end of every log.

    python tests/torture/monitor_fuzz.py --messages 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_process import wait_until
from kafka import KafkaProducer
from kafka_broker import running_broker
from torture.disturbed_streams import START_MS, StreamPlan
from torture.monitor_arena import MonitorArena

from streamcal.stream.events import REJECTIONS

__all__ = ["fuzz", "messages"]

FIELDS = ("id", "ts", "score", "label", "model", "segments", "raw_score", "map_version", "weight", "more")
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, 1.0000005, 1.3, -0.0, 1e-320, 1e308, 10**30, 10**400, 2**63, -(2**63)),
    *("", " ", "0", "1", "a" * 300, "\u0000", "\ud800", "Ü", "2023-11-14T22:13:20Z", "NaN", "__other__", "all"),
    *([], {}, [[[]]], {"": {"": 0}}, {"country": {"deep": 1}}, {"country": "x" * 5000}, [{"id": 1}]),
    *(START_MS // 1000, START_MS * 1000, START_MS * 10**6, 946_684_799_999, 4_102_444_800_000, START_MS + 0.5),
)
TEXTS = (
    *(b"", b"{", b"}", b"null", b"[]", b'""', b"NaN", b"Infinity", b"-", b"1e999", b"\xef\xbb\xbf{}", b"\xff\xfe"),
    *(b'{"id":', b'{"id":"a","id":"b","score":0.5,"label":1,"ts":1700000000000}', b"[" * 5000, b'{"a":' * 2000),
    *(b'{"id":"a","score":NaN,"ts":1700000000000}', b'{"id":"a","score":.5,"ts":1700000000000},{"id":"b"}'),
)
Mutation = Callable[[random.Random, bytearray], None]


def messages(count: int, seed: int) -> Iterator[tuple[str, bytes | None]]:
    """Topic ("p" or "o") and value of each message."""
    draw = random.Random(seed)
    for number in range(count):
        yield draw.choice("po"), _message(draw, number)


def _message(draw: random.Random, number: int) -> bytes | None:
    kind = draw.random()
    if kind < 0.02:
        return None
    if kind < 0.07:
        return draw.choice(TEXTS)
    if kind < 0.12:
        return draw.randbytes(draw.randrange(200))
    if kind < 0.1202:
        return b'{"id":"' + b"x" * draw.randrange(900_000) + b'"'
    event = _event(draw, number)
    if kind < 0.3:
        return json.dumps(event).encode()
    if kind < 0.65:
        for field in draw.sample(FIELDS, draw.randrange(1, 4)):
            event[field] = draw.choice(ODD)
        return json.dumps(event).encode("utf-8", "surrogatepass")
    value = bytearray(json.dumps(event).encode())
    for _ in range(draw.randrange(1, 4)):
        draw.choice(MUTATIONS)(draw, value)
    return bytes(value)


def _event(draw: random.Random, number: int) -> dict[str, Any]:
    """Sound on both topics."""
    at = START_MS + number * 20 + draw.randrange(-1000, 1000)
    event: dict[str, Any] = {"id": f"id-{number // 3}", "ts": at, "score": draw.random(), "label": draw.randrange(2)}
    event["segments"] = {"country": draw.choice("abc"), "device": draw.choice("xy")}
    if draw.random() < 0.3:
        event |= {"raw_score": draw.random(), "map_version": draw.randrange(4), "weight": draw.random()}
    return event


def _change(draw: random.Random, value: bytearray) -> None:
    if value:
        value[draw.randrange(len(value))] = draw.randrange(256)


def _cut(draw: random.Random, value: bytearray) -> None:
    start = draw.randrange(len(value) + 1)
    del value[start : start + draw.randrange(1, 20)]


def _double(draw: random.Random, value: bytearray) -> None:
    start = draw.randrange(len(value) + 1)
    value[start:start] = value[start : start + draw.randrange(1, 20)]


def _insert(draw: random.Random, value: bytearray) -> None:
    place = draw.randrange(len(value) + 1)
    value[place:place] = draw.choice((b'"', b"{", b"}", b",", b"\\", b"\x00", b"\xc3", b"e9", b"-", b"\\ud800"))


def _truncate(draw: random.Random, value: bytearray) -> None:
    del value[draw.randrange(len(value) + 1) :]


MUTATIONS: Sequence[Mutation] = (_change, _cut, _double, _insert, _truncate)


def fuzz(bootstrap: str, folder: Path, count: int, seed: int, timeout_s: float = 300) -> Counter[str]:
    """Send the messages, kill the monitor in the middle, and account for all of them; gives the account."""
    # One partition: mutated ids would look like topics keyed by something else, which is refused at the start.
    plan = StreamPlan(0, 1, seed)
    with MonitorArena(bootstrap, folder, plan) as arena:
        monitor = arena.member("one")
        sent = _send(arena, list(messages(count // 2, seed)))
        arena.wait_work()
        monitor.kill()
        monitor = arena.member("one")
        sent += _send(arena, list(messages(count - count // 2, seed + 1)))

        def read() -> bool:
            arena.check()
            return arena.position() == sent.total()

        wait_until(read, timeout_s)
        account: Counter[str] = Counter()

        def accounted() -> bool:
            account.clear()
            account.update(_account(monitor.samples()))
            return {fate: account[fate] for fate in sent} == sent

        try:
            wait_until(accounted, 30)
        except TimeoutError as error:
            raise AssertionError(f"sent {sent}, accounted for {account}") from error
        arena.stop()
    return account


def _send(arena: MonitorArena, values: Sequence[tuple[str, bytes | None]]) -> Counter[str]:
    """Send them; gives how many with a value went to each topic, and how many without one."""
    producer = KafkaProducer(bootstrap_servers=arena.bootstrap, acks="all", linger_ms=20, batch_size=200_000)
    for number, (topic, value) in enumerate(values):
        producer.send(arena.names[topic], value, key=b"-", partition=0, timestamp_ms=START_MS + number * 20)
    producer.flush()
    producer.close()
    return Counter("ignored" if value is None else topic for topic, value in values)


def _account(samples: Any) -> Counter[str]:
    """Where the metrics say that messages went; of both topics, and by reason."""
    found: Counter[str] = Counter()
    fates = {
        "streamcal_predictions_accepted_total": "p",
        "streamcal_predictions_duplicate_total": "p",
        "streamcal_predictions_late_total": "p",
        "streamcal_outcomes_accepted_total": "o",
    }
    for (name, labels), value in samples.items():
        if name in fates:
            found[fates[name]] += int(value)
            found[name.removeprefix("streamcal_").removesuffix("_total")] += int(value)
        elif name == "streamcal_events_rejected_total":
            reason, topic = dict(labels)["reason"], dict(labels)["topic"]
            assert reason in REJECTIONS, reason
            found[topic[0]] += int(value)
            found[f"rejected: {reason}"] += int(value)
        elif name == "streamcal_events_ignored_total":
            found["ignored"] = int(value)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; prints where the messages went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    with running_broker() as broker, tempfile.TemporaryDirectory(prefix="streamcal-torture-") as folder:
        account = fuzz(broker.bootstrap, Path(folder), given.messages, given.seed, 3600)
    print(f"{given.messages} messages, each counted once; read to the end of every log:", dict(sorted(account.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
