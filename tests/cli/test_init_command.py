from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from foreign_schemas import SCHEMAS

FOREIGN = SCHEMAS["mixed"](random.Random(1))


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    for name, messages in (("p", FOREIGN.predictions), ("o", FOREIGN.outcomes)):
        (tmp_path / name).write_bytes(b"\n".join(message.value for message in messages))
    return ["--predictions-file", tmp_path / "p", "--outcomes-file", tmp_path / "o"]


def test_a_configuration_is_written_that_check_config_and_replay_take(streamcal, files, tmp_path: Path) -> None:
    out, report = tmp_path / "c.yaml", tmp_path / "report"
    said = streamcal("init", *files, "--out", out)
    assert (said.code, said.out) == (0, "")
    assert "100 % of 800 outcomes match a prediction by id." in said.err
    assert streamcal("check-config", "--config", out).code == 0
    done = streamcal(
        "replay", "--config", out, "--predictions", files[1], "--outcomes", files[3], "--report", report, "--drain"
    )
    assert done.code == 0
    counters = json.loads((report / "report.json").read_text(encoding="utf-8"))["counters"]
    assert counters["matched"] == FOREIGN.outcomes_of_ours


def test_without_a_file_it_goes_to_standard_output(streamcal, files, tmp_path: Path) -> None:
    said = streamcal(
        "init", *files, "--set", "join.horizon=3d", "--set", "events.outcome.filter={path: type, equals: settlement}"
    )
    assert said.code == 0
    (tmp_path / "c.yaml").write_text(said.out, encoding="utf-8")
    assert "  horizon: 3d" in said.out.splitlines()
    assert streamcal("check-config", "--config", tmp_path / "c.yaml").code == 0


def test_a_file_that_exists_is_kept(streamcal, files, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("{}", encoding="utf-8")
    said = streamcal("init", *files, "--out", out)
    assert said.code == 2
    assert "--force" in said.err
    assert out.read_text(encoding="utf-8") == "{}"
    assert streamcal("init", *files, "--out", out, "--force").code == 0
    assert "order" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "give --bootstrap-servers"),
        (["--predictions", "p"], "go together"),
        (["--predictions-file", "p"], "go together"),
        (["--events-file", "e", "--bootstrap-servers", "a:1", "--predictions", "p", "--outcomes", "o"], "or files"),
        (["--events-file", "e", "--set", "horizon"], "is not KEY=VALUE"),
        (["--events-file", "e", "--set", "join.horizon=[1"], "join.horizon is not a YAML value"),
        (["--events-file", "e", "--set", "events.outcome.filter.path=x"], "give the filter in one"),
        (["--events-file", "e", "--set", "kafka.security=x", "--set", "kafka.security.ssl_ciphers=x"], "give one"),
    ],
)
def test_wrong_usage_is_said(streamcal, arguments: list[str], expected: str) -> None:
    said = streamcal("init", *arguments)
    assert said.code == 2
    assert expected in " ".join(said.err.split())


def test_files_that_cannot_be_used_are_named(streamcal, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n\n")
    for path, expected in ((tmp_path / "none", "No such file"), (tmp_path / "empty", "holds no events")):
        said = streamcal("init", "--predictions-file", path, "--outcomes-file", path)
        assert said.code == 3
        assert f"{path}: {expected}" in said.err


def test_nothing_in_common_says_what_to_give(streamcal, tmp_path: Path) -> None:
    for name in ("p", "o"):
        (tmp_path / name).write_text(
            "\n".join(f'{{"id": "{name}{i}", "ts": 1700000000000}}' for i in range(9)), encoding="utf-8"
        )
    said = streamcal("init", "--predictions-file", tmp_path / "p", "--outcomes-file", tmp_path / "o")
    assert said.code == 2
    assert "--set events.prediction.id=PATH" in said.err


def test_a_section_given_whole_is_its_keys(streamcal, files) -> None:
    said = streamcal(
        "init", *files, "--set", "events.outcome={id: order, time: at}", "--set", "events.outcome.filter={path: type}"
    )
    assert said.code == 2
    assert "events.outcome.filter.equals: is required" in said.err
    for key in ("events.prediction", "events.prediction.id.x", "join"):
        said = streamcal("init", *files, "--set", f"{key}=5")
        assert said.code == 2
        assert "Traceback" not in said.err
    said = streamcal("init", *files, "--set", "events.prediction={id: order, time: at}", "--set", "alarms.ece=null")
    assert said.code == 0
    assert "    # given\n    id: order\n" in said.out
