from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamcal.inspect.config_text import config_text, flow
from streamcal.inspect.proposal import Guess
from streamcal.runtime.yaml_reader import parse_value, read_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(VALUES)
def test_whatever_a_stream_holds_is_read_back(value: Any) -> None:
    assert parse_value(flow(value)) == value


@given(st.lists(st.text(), max_size=4))
def test_a_comment_never_becomes_a_key(tmp_path_factory: Any, reasons: list[str]) -> None:
    path: Path = tmp_path_factory.mktemp("text") / "c.yaml"
    guesses = {f"events.k{i}": Guess(i, reason) for i, reason in enumerate(reasons)}
    path.write_text(config_text(reasons, guesses), encoding="utf-8")
    expected = {"events": {f"k{i}": i for i in range(len(reasons))}} if reasons else {}
    assert read_yaml(path).values == expected
