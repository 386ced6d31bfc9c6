"""Names the decoder cannot read are refused with their key, not at the first event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamcal.errors import ConfigError
from streamcal.runtime.config import load_config
from streamcal.runtime.wiring import engine_settings
from streamcal.stream.events import Names

NAMES = ['a"b', "a\\b", "a\nb", "a\0b"]


def load(folder: Path, content: object) -> None:
    path = folder / "c.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    settings = engine_settings(load_config(path, environ={}, require_kafka=False))
    settings.decoders(Names(settings.dimensions))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("events.prediction.id", lambda name: {"events": {"prediction": {"id": name}}}),
        ("events.outcome.filter.path", lambda name: {"events": {"outcome": {"filter": {"path": name, "equals": 1}}}}),
        ("events.prediction.segments.x", lambda name: {"events": {"prediction": {"segments": {"x": name}}}}),
        ("segments.cuts", lambda name: {"segments": {"cuts": [[name]]}}),
    ],
)
def test_a_name_that_cannot_be_read_is_a_problem_of_its_key(tmp_path: Path, name: str, key: str, content) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, content(name))
    assert key in dict(caught.value.problems)


@pytest.mark.parametrize("name", ["a b", "\u00e9", "a:b", "a'b", "a\u2028b"])
def test_other_names_are_read(tmp_path: Path, name: str) -> None:
    load(tmp_path, {"events": {"prediction": {"id": name}}, "segments": {"cuts": [[name]]}})
