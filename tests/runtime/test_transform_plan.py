"""What `streamcal transform` is told: defaults filled in, contradictions listed."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from streamcal.errors import ConfigError
from streamcal.runtime.config import Config
from streamcal.runtime.config_transform import host_instance
from streamcal.runtime.transforming.plan import Plan, make_plan

KAFKA = {"bootstrap_servers": ["localhost:9092"], "group_id": "g"}


def plan(**sections: Any) -> Plan:
    given = {"kafka": KAFKA, "transform": {"input": "raw"}, **sections}
    return make_plan(Config.model_validate(given))


def problems(**sections: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        plan(**sections)
    return dict(caught.value.problems)


def test_what_is_left_out_follows_from_the_rest() -> None:
    made = plan()
    assert (made.input, made.output, made.maps) == ("raw", "predictions", "streamcal.maps")
    assert made.group_id == "g-transform"
    assert made.instance_id == host_instance()
    assert made.transactional_id == f"g-transform-{made.instance_id}"
    assert made.gather_s == 0.1
    assert not made.stop_at_invalid


def test_the_static_member_of_the_kafka_section_is_used_and_its_own_key_wins() -> None:
    kafka = {**KAFKA, "group_instance_id": "pod-1"}
    assert plan(kafka=kafka).instance_id == "pod-1"
    assert plan(kafka=kafka, transform={"input": "raw", "instance_id": "t-1"}).transactional_id == "g-transform-t-1"


def test_the_host_name_is_made_one_that_kafka_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "höst/7 " + "x" * 300)
    assert re.fullmatch(r"h-st-7-x{193}", host_instance())


def test_all_contradictions_are_listed_at_once() -> None:
    found = problems(
        transform={"input": "outcomes", "output": "streamcal.maps", "group_id": "g"},
        events={"prediction": {"raw_score": None, "map_version": "$key"}},
    )
    assert found.keys() == {
        "transform.input",
        "transform.output",
        "transform.group_id",
        "events.prediction.raw_score",
        "events.prediction.map_version",
    }


def test_the_input_is_required_and_must_not_be_the_output() -> None:
    assert "is required" in problems(transform={})["transform.input"]
    assert "topics.predictions" in problems(transform={"input": "predictions"})["transform.input"]


def test_only_json_is_rewritten() -> None:
    found = problems(events={"format": "avro", "schema_registry": {"url": "http://localhost:8081"}})
    assert found == {"events.format": "is avro; transform rewrites JSON only"}
