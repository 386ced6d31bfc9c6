"""The state of a source, written down and taken up again at any moment, goes on as if nothing had happened."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_streams import engine
from recount_events import Event, Rules

from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.monitor_wiring import source_settings
from streamcal.state.packing import pack, unpack
from streamcal.state.trees import dump, load
from streamcal.stream.source import Source

START = 1_700_000_000_000
RULES = Rules(horizon_ms=60_000, out_of_order_ms=0)
TOPIC = {"p": "predictions", "o": "outcomes"}
EVENTS: list[Event] = [
    ("o", 0, {"id": "early", "ts": START, "label": 1}, None),
    ("p", 0, {"id": "a", "ts": START + 10, "score": 0.3, "model": "m"}, None),
    ("p", 0, {"id": "b", "ts": START + 20, "score": 0.4, "model": "n"}, None),
    ("o", 0, {"id": "a", "ts": START + 30, "label": 0}, None),
    # everything before is forgotten
    ("p", 0, {"id": "c", "ts": START + 900_000, "score": 0.4, "model": "o"}, None),
    ("o", 0, {"id": "c", "ts": START + 900_001, "label": 1}, None),
]


def fresh() -> Source:
    return Source(source_settings(engine(RULES)._settings))


def fed(source: Source, events: list[Event], offsets: dict[str, int]) -> Source:
    for topic, _, value, _ in events:
        offset = offsets.get(topic, 0)
        record = LogRecord(json.dumps(value).encode(), offset=offset)
        source.apply(source.take_in(TOPIC[topic], [record], offset + 1))
        source.take()
        offsets[topic] = offset + 1
    return source


def written(source: Source) -> Any:
    return unpack(pack(dump(source)))


@pytest.mark.parametrize("stop", range(len(EVENTS) + 1))
def test_it_goes_on_from_its_state_after_any_event(stop: int) -> None:
    offsets: dict[str, int] = {}
    before = fed(fresh(), EVENTS[:stop], offsets)
    after = fresh()
    load(after, written(before))
    fed(after, EVENTS[stop:], offsets)
    whole = fed(fresh(), EVENTS, {})
    assert after.tally.total() == whole.tally.total()
    assert after.watermarks == whole.watermarks
    assert after.offsets == whole.offsets
