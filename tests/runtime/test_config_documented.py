"""config.yaml documents every key there is, and no other.

Lines that begin with ``#:`` are examples; each block of them replaces the line above it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from streamcal.runtime.config import Config, load_config
from streamcal.runtime.config_problems import schema_at

SHIPPED = Path(__file__).parents[2] / "config.yaml"
NAMED = re.compile(r"^models\.[^.]+")
EXAMPLE = re.compile(r"^(\s*)#: ?")


def with_examples(text: str) -> str:
    lines: list[str] = []
    before = ""
    for line in text.splitlines():
        if EXAMPLE.match(line):
            if not EXAMPLE.match(before):
                assert lines.pop() == before
            lines.append(EXAMPLE.sub(r"\1", line))
        else:
            lines.append(line)
        before = line
    return "\n".join(lines)


@pytest.fixture
def full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for named in ("churn-map.json", "maps.key", "maps.pub"):
        (tmp_path / named).write_text("{}", encoding="utf-8")
    path = tmp_path / "c.yaml"
    path.write_text(with_examples(SHIPPED.read_text(encoding="utf-8")), encoding="utf-8")
    return path


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name in model.model_fields:
        path = f"{prefix}{name}"
        yield path
        below = schema_at(model, (name,))
        if isinstance(below, type) and issubclass(below, BaseModel):
            yield from keys_of(below, f"{path}.")
        named = schema_at(model, (name, "*"))
        if isinstance(named, type) and issubclass(named, BaseModel) and named is not below:
            yield from (f"{path}.*", *keys_of(named, f"{path}.*."))


def written_keys(path: Path) -> dict[str, int]:
    from streamcal.runtime.yaml_reader import read_yaml

    lines = read_yaml(path).lines
    return {NAMED.sub("models.*", ".".join(key)): line for key, line in lines.items()}


FREE_BELOW = ("kafka.consumer.", "kafka.producer.", "events.prediction.segments.")
SECTIONS_ELSEWHERE = ("models.*.alarms.", "models.*.refit.")
"""Their keys are documented under `alarms` and `refit`."""


def test_every_key_is_documented_and_every_documented_key_exists(full):
    known = {key for key in keys_of(Config) if not key.startswith(SECTIONS_ELSEWHERE)}
    written = {key for key in written_keys(full) if not key.startswith(FREE_BELOW + SECTIONS_ELSEWHERE)}
    assert written == known
    assert len(known) > 100


def test_every_key_has_words_above_it(full):
    lines = full.read_text(encoding="utf-8").splitlines()
    inside = {"models.*", "models.*.prior.negative_sampling_rate", "models.*.prior.positive_weight"}
    inside |= {"models.*.prior.map_file", "events.prediction", "events.outcome"}
    for key, line in written_keys(full).items():
        if key in inside or key.startswith(FREE_BELOW + SECTIONS_ELSEWHERE):
            continue
        assert lines[line - 2].strip().startswith("#"), f"{key} is not documented"


def test_the_examples_are_valid_together(full):
    config = load_config(full, environ={}, require_kafka=True)
    assert config.model("clicks").prior.positive_weight == 20
    assert config.events.outcome.negative_values == ("NO", "settled")


def test_the_file_as_shipped_is_the_defaults_key_by_key():
    assert load_config(SHIPPED, environ={}, require_kafka=False).model_dump() == Config().model_dump()
