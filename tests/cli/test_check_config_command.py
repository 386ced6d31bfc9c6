from __future__ import annotations

from pathlib import Path

import pytest

from streamcal.cli.check_config import _bytes
from streamcal.runtime.config import load_config
from streamcal.runtime.estimate import Load, estimate

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "examples" / "flights" / "config.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def fields(text: str) -> dict[str, str]:
    return {line[:12].strip(): line[14:] for line in text.splitlines()}


def test_every_problem_is_listed_at_once(streamcal, file: Path) -> None:
    file.write_text("join: {horizon: soon, labels: NO}\nwindow: {}\nrefit: {mode: off, every: -1h}\n", encoding="utf-8")
    said = streamcal("check-config", "--config", file)
    assert said.code == 2
    assert said.out == ""
    for key in ("join.horizon", "join.labels", "window", "refit.every"):
        assert f"\n  {key}" in said.err
    assert "refit.mode" not in said.err  # unquoted off is the word off


def test_a_sound_configuration_is_summed_up(streamcal) -> None:
    said = streamcal("check-config", "--config", FLIGHTS)
    assert (said.code, said.err) == (0, "")
    shown = fields(said.out)
    assert shown["windows"] == "24h, 7d of prediction time, in panes of 15m"
    assert shown["cuts"] == "carrier; carrier,origin; at most 1,000 segments each"
    families = "intercept, platt, cir, tracking"
    assert shown["model"] == f"default: labels both within 24h, refit auto every 1h on 14d ({families})"


def test_the_threshold_of_alarms_is_said_in_words(streamcal, file: Path) -> None:
    shown = fields(streamcal("check-config", "--config", FLIGHTS).out)
    # Panes of 15 minutes: ln(96 * 30 * 1000).
    assert shown["alarms"] == (
        "default: at most 1 false alarm in 30 days over 1,000 segments: evidence >= 14.9; "
        "dispersion estimated, shifts of up to 0.1 logits let pass"
    )
    file.write_text(
        "segments: {cuts: []}\nalarms: {false_alarms_per_month: 2.5, tolerance_logit: 0, dispersion: 3}\n",
        encoding="utf-8",
    )
    shown = fields(streamcal("check-config", "--config", file).out)
    # Panes of a minute: ln(1440 * 30 / 2.5).
    assert shown["alarms"] == (
        "default: at most 2.5 false alarms in 30 days over 1 segment: evidence >= 9.8; dispersion 3"
    )


def test_series_and_bytes_are_those_of_the_estimate(streamcal) -> None:
    arguments = ("--rate", "0.01", "--segments", "16", "--segments", "carrier,origin=35")
    shown = fields(streamcal("check-config", "--config", FLIGHTS, *arguments).out)
    config = load_config(FLIGHTS, environ={}, require_kafka=False)
    expected = estimate(config, Load(0.01, {("carrier",): 16, ("carrier", "origin"): 35}))
    assert shown["series"] == f"about {expected.figure_series:,} of figures"
    assert shown["state"].startswith(f"about {_bytes(expected.state_bytes)} (join {_bytes(expected.join_bytes)}, ")
    assert shown["state"].endswith(f"; {expected.remembered:,} predictions remembered")


def test_the_cap_on_series_is_said(streamcal) -> None:
    shown = fields(streamcal("check-config", "--config", FLIGHTS).out)
    assert shown["series"].endswith(", capped at 50,000")


@pytest.mark.parametrize("arguments", [["--rate", "0"], ["--rate", "nan"], ["--segments", "0"], ["--segments", "x=4"]])
def test_impossible_loads_are_wrong_usage(streamcal, arguments: list[str]) -> None:
    said = streamcal("check-config", "--config", FLIGHTS, *arguments)
    assert said.code == 2
    assert f"Error: Invalid value for {arguments[0]}: " in said.err


def test_kafka_is_checked_where_the_file_speaks_of_it(streamcal, file: Path) -> None:
    file.write_text("kafka: {group_id: g}\n", encoding="utf-8")
    said = streamcal("check-config", "--config", file)
    assert said.code == 2
    assert "kafka.bootstrap_servers: is required" in said.err


def test_kafka_is_checked_where_the_environment_speaks_of_it(streamcal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMCAL_KAFKA__BOOTSTRAP_SERVERS", "a:1,b:2")
    assert "kafka.group_id: is required" in streamcal("check-config").err
    monkeypatch.setenv("STREAMCAL_KAFKA__GROUP_ID", "g")
    said = streamcal("check-config")
    assert said.code == 0
    assert fields(said.out)["kafka"] == "a:1, b:2 as group g, from latest"


def test_kafka_is_checked_where_it_is_asked_for(streamcal) -> None:
    assert streamcal("check-config", "--config", FLIGHTS).code == 0
    said = streamcal("check-config", "--config", FLIGHTS, "--kafka")
    assert said.code == 2
    assert "kafka.bootstrap_servers: is required" in said.err


def test_each_model_is_summed_up(streamcal, file: Path) -> None:
    file.write_text(
        "models: {fraud: {labels: positives_only, horizon: 7d, refit: {mode: off}, "
        "prior: {negative_sampling_rate: 0.1}}}\n",
        encoding="utf-8",
    )
    lines = streamcal("check-config", "--config", file).out.splitlines()
    models = [line[14:] for line in lines if line.startswith("model")]
    assert models[1] == "fraud: labels positives_only within 168h, refit off, with a map of day 0"


def test_a_missing_file_is_one_problem(streamcal, file: Path) -> None:
    said = streamcal("check-config", "--config", file)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[1] == "  file: cannot be read: No such file or directory"
