"""Which changes of the configuration a state can follow: one table, whole, and enforced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from streamcal.runtime.claims import about_of, settings_of
from streamcal.runtime.config import Config
from streamcal.runtime.config_sections import ModelOverrides
from streamcal.state.about import CHANGES, About, ConfigChangeError, changes, check_followed, rule_of

DOCUMENTED = Path(__file__).parents[2] / "docs" / "how-to" / "state.md"

VALUES: dict[str, tuple[Any, Any]] = {
    "topics.predictions": ("a", "b"),
    "topics.outcomes": ("a", "b"),
    "topics.counts": ("a", "b"),
    "events.sample_rate": (1.0, 0.5),
    "events.classes": ([], ["cat", "dog"]),
    "events.prediction.id": ("id", "payload.id"),
    "events.prediction.model": ("model", "m"),
    "events.prediction.time": ("ts", "at"),
    "events.prediction.time_unit": ("ms", "s"),
    "events.prediction.time_source": ("field", "record"),
    "events.outcome.id": ("id", "payload.id"),
    "events.outcome.label": ("label", "clicked"),
    "events.outcome.model": ("model", None),
    "events.outcome.time": ("ts", "at"),
    "events.outcome.time_unit": ("ms", "s"),
    "events.outcome.time_source": ("field", "record"),
    "events.outcome.positive_values": (None, ["yes"]),
    "events.outcome.negative_values": (None, ["no"]),
    "events.outcome.filter": (None, {"path": "type", "equals": "click"}),
    "join.labels": ("both", "positives_only"),
    "join.horizon": ("24h", "7d"),
    "join.skew": ("0s", "5s"),
    "join.out_of_order": ("60s", "2m"),
    "join.repartition": ("none", "outcomes"),
    "windows.pane": ("60s", "5m"),
    "windows.lengths": (["1h"], ["1h", "24h"]),
    "windows.time": ("outcome", "prediction"),
    "segments.cuts": ([["country"]], [["device"]]),
    "segments.max_segments": (1000, 2000),
}
"""A change of every setting that a state cannot follow."""

ALLOWED: dict[str, tuple[Any, Any]] = {
    "kafka.client_id": ("a", "b"),
    "kafka.commit_interval": ("1s", "2s"),
    "topics.maps": ("a", "b"),
    "topics.dead_letter": (None, "letters"),
    "events.max_weight": (1000.0, 10.0),
    "events.max_bytes": (1_048_576, 10_000),
    "events.prediction.score": ("score", "p"),
    "events.prediction.weight": ("weight", None),
    "join.idle_timeout": ("60s", "5m"),
    "join.max_future": ("5m", "1h"),
    "metrics.ece_bins": (10, 20),
    "alarms.tolerance_logit": (0.1, 0.2),
    "refit.every": ("1h", "2h"),
    "refit.fit_window": ("14d", "7d"),
    "refit.mode": ("auto", "off"),
    "serve.port": (9871, 9872),
}


def config(changed: dict[str, Any]) -> Config:
    tree: dict[str, Any] = {"kafka": {"group_id": "g"}}
    for key, value in changed.items():
        at = tree
        *above, name = key.split(".")
        for part in above:
            at = at.setdefault(part, {})
        at[name] = value
    return Config.model_validate(tree)


def about(changed: dict[str, Any]) -> bytes:
    return about_of(config(changed), "1.0").to_bytes()


@pytest.mark.parametrize("key", VALUES)
def test_a_change_that_needs_a_rebuild_is_refused_with_key_values_and_remedy(key: str) -> None:
    before, after = VALUES[key]
    with pytest.raises(ConfigChangeError) as raised:
        check_followed(about({key: before}), about({key: after}), where="state[0]")
    text = str(raised.value)
    assert text.startswith("state[0]: the state was made under another configuration\n")
    lines = [line.strip() for line in text.splitlines()[1:-1]]
    assert [line.partition(":")[0] for line in lines] == [key]
    assert " before, " in lines[0]
    assert text.splitlines()[-1].count("`streamcal state") == 2
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("key", ALLOWED)
def test_a_change_that_the_state_can_follow_passes(key: str) -> None:
    before, after = ALLOWED[key]
    check_followed(about({key: before}), about({key: after}))


def test_two_ways_to_write_one_value_are_no_change() -> None:
    check_followed(about({"join.horizon": "24h"}), about({"join.horizon": "1d"}))
    check_followed(about({"join.horizon": "24h"}), about({}))


def test_every_problem_is_named_at_once_and_both_values_are_shown() -> None:
    with pytest.raises(ConfigChangeError) as raised:
        check_followed(about({}), about({"join.horizon": "7d", "join.skew": "5s"}))
    text = str(raised.value)
    assert "join.horizon: 86400000 before, 604800000 now" in text
    assert "join.skew: 0 before, 5000 now" in text


def test_a_model_may_get_its_own_horizon_as_long_as_the_state_does_not_know_it() -> None:
    before, after = about({}), about({"models.ads.horizon": "7d"})
    check_followed(before, after)
    check_followed(before, after, models=["default", "other"])
    with pytest.raises(ConfigChangeError, match=r"models\.ads\.horizon: 86400000 before, 604800000 now"):
        check_followed(before, after, models=["default", "ads"])


def test_a_model_of_its_own_with_the_values_of_all_is_no_change() -> None:
    check_followed(about({}), about({"models.ads.horizon": "24h"}), models=["ads"])


def test_other_partition_counts_are_refused_with_another_remedy() -> None:
    before, after = (about_of(config({}), "1.0", sources=n, shards=1).to_bytes() for n in (4, 8))
    with pytest.raises(ConfigChangeError, match=r"\(partitions of the inputs\): 4 before, 8 now") as raised:
        check_followed(before, after)
    assert "kafka.group_id" in raised.value.hint


def test_a_topic_that_was_made_anew_is_refused_and_one_of_unknown_id_is_not() -> None:
    before = About(topic_ids={"predictions": "1", "outcomes": "2"}).to_bytes()
    with pytest.raises(ConfigChangeError, match=r'\(id of topics.outcomes\): "2" before, "3" now') as raised:
        check_followed(before, About(topic_ids={"predictions": "1", "outcomes": "3"}).to_bytes())
    assert "streamcal state rebuild" in raised.value.hint
    check_followed(before, About(topic_ids={"predictions": "1"}).to_bytes())
    check_followed(About().to_bytes(), before)


def test_another_layout_needs_a_rebuild() -> None:
    with pytest.raises(ConfigChangeError, match="bin layout"):
        check_followed(About(layout="a").to_bytes(), About(layout="b").to_bytes())


def test_there_is_nothing_to_follow_where_there_is_no_state_or_nothing_can_be_read() -> None:
    check_followed(None, about({"join.horizon": "7d"}))
    check_followed(b"0.1.0 abcdef", about({"join.horizon": "7d"}))


def test_every_key_of_the_configuration_has_a_rule() -> None:
    keys = list(leaves(Config, ""))
    assert len(keys) > 80
    for key in keys:
        assert rule_of(key).why, key


def test_every_rule_is_about_a_key_of_the_configuration() -> None:
    keys = [*leaves(Config, ""), *(f"models.<name>.{key}" for key in ("labels", "horizon", "classes"))]
    for rule in CHANGES:
        if not rule.key.startswith("("):
            assert any(key == rule.key or key.startswith(f"{rule.key}.") for key in keys), rule.key


def test_a_claim_holds_exactly_the_settings_that_a_state_depends_on() -> None:
    held = settings_of(config({"models.ads.horizon": "7d"}))
    assert set(held) == set(VALUES) | {"models.ads.horizon", "models.ads.labels", "models.ads.classes"}
    assert all(rule_of(key).verdict != "allowed" for key in held)


def test_claims_hold_no_secret_and_no_address(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2")
    tree = {
        "kafka": {
            "bootstrap_servers": "broker.example:9092",
            "group_id": "g",
            "security": {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "someone",
                "sasl_password_file": str(secret),
            },
        }
    }
    said = about_of(Config.model_validate(tree), "1.0").to_bytes()
    for word in (b"hunter2", b"someone", b"broker.example", str(secret).encode()):
        assert word not in said


def test_the_documented_table_is_that_of_the_code() -> None:
    text = DOCUMENTED.read_text(encoding="utf-8")
    for rule in CHANGES:
        assert f"| {shown(rule.key)} | {rule.verdict} | {rule.why} |" in text


def shown(key: str) -> str:
    return key.strip("()") if key.startswith("(") else f"`{key}`"


def test_the_differences_of_two_claims_are_listed_in_the_order_of_their_keys() -> None:
    before, after = (About.from_bytes(about(changed)) for changed in ({}, {"join.skew": "1s", "join.horizon": "1h"}))
    assert before is not None
    assert after is not None
    assert [change.key for change in changes(before, after)] == ["join.horizon", "join.skew"]


def leaves(section: type[BaseModel], prefix: str) -> list[str]:
    found = []
    for name, field in section.model_fields.items():
        kind = field.annotation
        if prefix == "" and name == "models":
            found += leaves(ModelOverrides, "models.<name>.")
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            found += leaves(kind, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def test_the_shipped_configuration_has_no_key_without_a_rule() -> None:
    tree = yaml.safe_load((DOCUMENTED.parents[2] / "config.yaml").read_text(encoding="utf-8"))
    for section, keys in tree.items():
        for key in keys or {}:
            assert rule_of(f"{section}.{key}").why


def test_a_model_of_several_classes_is_known_by_the_names_of_its_classes() -> None:
    before, after = (about_of(config({"models.pets.classes": held}), "v") for held in (["cat", "dog"], ["cat", "cow"]))
    check_followed(before.to_bytes(), after.to_bytes(), models={"petshop", "ctr"})
    with pytest.raises(ConfigChangeError, match=r"models\.pets\.classes"):
        check_followed(before.to_bytes(), after.to_bytes(), models={"pets/cat", "pets/dog"})
    usual = about_of(config({"events.classes": ["cat", "dog"]}), "v")
    with pytest.raises(ConfigChangeError, match=r"events\.classes"):
        check_followed(usual.to_bytes(), about_of(config({}), "v").to_bytes())
