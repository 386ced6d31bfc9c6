"""`streamcal maps list` and `maps diff` against the daemon's HTTP side, and without a daemon."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from served_loop import ServedLoop

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.maps.loop import MapRequest
from streamcal.maps.preview import GRID


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of tables are not folded."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def served() -> Iterator[ServedLoop]:
    with ServedLoop() as loop:
        yield loop


@pytest.fixture(scope="module")
def nobody() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "steep.json"
    path.write_bytes(encode(new_document("default", 3, Platt(1.5, 0.25), at_ms=5)))
    return path


def cells(out: str, begin: str) -> list[str]:
    """Of the line of a table that begins so."""
    (line,) = (line for line in out.splitlines() if line.strip().startswith(begin + " "))
    return line.split()[1:]


# --- list ----------------------------------------------------------------------------------------------------


def test_the_list_says_what_is_in_force_since_when_by_what_and_whether_it_is_pinned(streamcal) -> None:
    with ServedLoop() as served:
        said = streamcal("maps", "list", "--url", served.url)
        assert (said.code, said.err) == (0, "")
        version, family = served.loop.version, served.loop.champion.map_.family
        row = cells(said.out, "default")
        assert row[:2] == [str(version), family]
        assert row[2].startswith("2023-11-")
        assert "schedule: gained" in said.out
        assert served.loop.manual(served.now, MapRequest("promote", "ada", "a\x1btest", family="cir")).done
        served.loop.manual(served.now, MapRequest("pin", "bob", "inquiry"))
        served.feed(60, 1.2)  # refusals since then, more than the newest ones that are shown
        said = streamcal("maps", "list", "--url", served.url)
        assert cells(said.out, "default")[:2] == [str(version + 1), "cir"]
        assert "ada (promoted): a?test" in said.out
        assert "yes, by bob: inquiry" in said.out
        (line,) = streamcal("maps", "list", "--json", "--url", served.url).out.splitlines()
        told = json.loads(line)
        assert (told["model"], told["version"], told["pinned"]) == ("default", str(version + 1), "yes, by bob: inquiry")


def test_a_model_without_a_map_serves_raw_scores(streamcal) -> None:
    with ServedLoop(hours=2) as served:
        assert "raw scores" in streamcal("maps", "list", "--url", served.url).out


def test_without_a_daemon_and_a_broker_the_address_is_named(streamcal, nobody: str) -> None:
    said = streamcal("maps", "list", "--url", nobody)
    assert (said.code, said.out) == (10, "")
    assert f"{nobody}: no daemon answers" in said.err


@pytest.mark.kafka
def test_without_a_daemon_the_list_and_versions_come_from_the_topic(
    streamcal, kafka: str, topics: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, nobody: str
) -> None:
    from kafka import KafkaProducer

    (topic,) = topics("maps")
    producer = KafkaProducer(bootstrap_servers=kafka)
    for version in (1, 2):
        document = new_document("default", version, Platt(1.0, version / 4), at_ms=1_700_000_000_000)
        producer.send(topic, key=b"default", value=encode(document)).get(timeout=30)
    producer.close()
    for name, value in (("KAFKA__BOOTSTRAP_SERVERS", kafka), ("KAFKA__GROUP_ID", "g"), ("TOPICS__MAPS", topic)):
        monkeypatch.setenv(f"STREAMCAL_{name}", value)
    said = streamcal("maps", "list", "--url", nobody)
    assert (said.code, cells(said.out, "default")[:3]) == (0, ["2", "platt", "2023-11-14T22:13:20Z"])
    assert "no daemon answers" in said.err
    assert streamcal("maps", "list", "--topic").err == ""
    said = streamcal("maps", "diff", "1", "--url", nobody)
    assert (said.code, cells(said.out, "intercept")) == (0, ["0.5", "0.25"])
    assert "no daemon answers" in said.out


# --- diff ----------------------------------------------------------------------------------------------------


def test_two_maps_are_compared_on_the_present_scores(streamcal, served: ServedLoop, file: Path) -> None:
    said = streamcal("maps", "diff", "raw", file, "--cut-off", 0.5, "--cut-off", 0.9, "--url", served.url)
    assert (said.code, said.err) == (0, "")
    assert cells(said.out, "slope") == ["-", "1.5"]
    raw, before, after, moved = map(float, cells(said.out, "50%"))
    assert raw == before == pytest.approx(np.median(served.scores), rel=0.02)
    assert after == pytest.approx(Platt(1.5, 0.25).apply(np.array([raw]))[0], rel=2e-3)
    assert moved == pytest.approx(0.5 * np.log(raw / (1 - raw)) + 0.25, abs=2e-3)
    assert f"On {len(served.scores):,} labelled predictions of window 24h" in said.out
    for cut in (0.5, 0.9):
        share = float(said.out.split(f"share at or above {cut:g}")[1].split("->")[1].split("%")[0]) / 100
        assert share == pytest.approx((Platt(1.5, 0.25).apply(served.scores) >= cut).mean(), abs=0.01)


def test_one_map_alone_is_compared_with_what_is_in_force(streamcal, served: ServedLoop, file: Path) -> None:
    champion = served.loop.champion
    said = streamcal("maps", "diff", file, "--url", served.url)
    head = next(line for line in said.out.splitlines() if "steep.json" in line)
    assert head.split("steep.json")[0].strip() == f"version {champion.document.version}"
    assert cells(said.out, "family") == [champion.map_.family, "platt"]
    assert "set maps.cut_offs" in said.out


def test_a_family_stands_for_its_newest_fit_and_a_number_for_a_version(streamcal, served: ServedLoop) -> None:
    said = streamcal("maps", "diff", served.loop.version, "platt", "--url", served.url)
    fit = served.loop.challengers.newest("platt")
    assert cells(said.out, "slope")[-1] == f"{fit.slope:.6g}"
    for wrong, words in (
        ("4711", "there is no version 4711"),
        ("beta", "refit.families has"),
        ("x.json", "names no map"),
    ):
        said = streamcal("maps", "diff", wrong, "--url", served.url)
        assert (said.code, words in said.err) == (1, True)
    assert "no candidate" in streamcal("maps", "diff", "candidate", "--url", served.url).err


def test_cut_offs_of_the_configuration_are_shown(streamcal, served: ServedLoop, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("maps: {cut_offs: [0.25, 0.5]}\n", encoding="utf-8")
    said = streamcal("maps", "diff", "raw", "platt", "--url", served.url, "--config", config)
    assert [line.split("  ")[0] for line in said.out.splitlines() if line.startswith("share")] == [
        "share at or above 0.25",
        "share at or above 0.5",
    ]
    assert streamcal("maps", "diff", "raw", "platt", "--cut-off", "1.5", "--url", served.url).code == 2
    said = streamcal("maps", "diff", "raw", "platt", "--window", "9h", "--url", served.url)
    assert (said.code, "windows that do: 24h" in said.err) == (1, True)


def test_without_a_daemon_files_are_compared_on_a_fixed_grid(streamcal, nobody: str, file: Path) -> None:
    said = streamcal("maps", "diff", "raw", file, "--url", nobody)
    assert (said.code, said.err) == (0, "")
    rows = [line.split() for line in said.out.splitlines() if line.strip().startswith("- ")]
    assert [float(row[1]) for row in rows] == pytest.approx(GRID)
    assert "no daemon answers" in said.out
    said = streamcal("maps", "diff", "raw", "platt", "--url", nobody)
    assert (said.code, "known to the daemon only" in said.err) == (1, True)


def test_a_replays_report_gives_the_scores(streamcal, nobody: str, file: Path, tmp_path: Path) -> None:
    bins = [
        {"lo": 0.0, "hi": 0.5, "n": 60, "positives": 12, "mean_score": 0.2},
        {"lo": 0.5, "hi": 1.0, "n": 40, "positives": 30, "mean_score": 0.7},
        {"lo": 1.0, "hi": 1.0, "n": 0, "positives": 0},
    ]
    windows = {"all": {"raw": {"bins": bins}, "served": {}}}
    report = {"models": {"default": {"segments": {"all": {"windows": windows}}}}}
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    said = streamcal("maps", "diff", "raw", file, "--report", tmp_path, "--url", nobody)
    assert said.code == 0
    assert "On 100 labelled predictions of report.json" in said.out
    assert "mean score  0.4 -> " in said.out
    said = streamcal("maps", "diff", "raw", file, "--report", tmp_path, "--window", "1h", "--url", nobody)
    assert (said.code, "holds no bins" in said.err) == (3, True)
