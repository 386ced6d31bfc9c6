from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamcal.maps.document import Counts, FitWindow, MapDocument, encode, new_document
from streamcal.maps.families import Platt

DAY_MS = 86_400_000
T = 1_700_000_000_000


def document(version: int, *, model: str = "default", slope: float = 0.5) -> MapDocument:
    return new_document(
        model,
        version,
        Platt(slope, -0.25),
        at_ms=T + version * DAY_MS,
        fit_window=FitWindow(from_ms=T, to_ms=T + DAY_MS),
        counts=Counts(n=12_000, positives=3_000),
        evidence={"gain": 4.5},
        parent=version - 1 or None,
    )


def fields(text: str) -> dict[str, str]:
    """Of the document; the table of versions below it begins with a blank."""
    lines = [line for line in text.splitlines() if line[10:12] == "  " and not line.startswith(" ")]
    return {line[:10].strip(): line[12:] for line in lines}


# --- a file --------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    path.write_bytes(encode(document(3)))
    return path


def test_a_document_in_a_file_is_shown(streamcal, file: Path) -> None:
    said = streamcal("maps", "show", "--file", file)
    assert (said.code, said.err) == (0, "")
    shown = fields(said.out)
    assert shown["key"] == "default"
    assert shown["map"] == "platt(intercept -0.25, slope 0.5)"
    assert shown["decided"] == "2023-11-17T22:13:20Z of event time"
    assert shown["fitted on"] == "2023-11-14T22:13:20Z to 2023-11-15T22:13:20Z"
    assert shown["rows"] == "12,000, 3,000 positive"
    assert shown["evidence"] == "gain 4.5"
    assert shown["parent"] == "2"


def test_json_is_the_document_to_the_byte(streamcal, file: Path) -> None:
    assert streamcal("maps", "show", "--file", file, "--json").out.encode() == file.read_bytes() + b"\n"


def test_a_changed_document_is_refused(streamcal, file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"slope":0.5', b'"slope":0.6'))
    said = streamcal("maps", "show", "--file", file)
    assert (said.code, said.out) == (6, "")
    assert said.err.startswith(f"streamcal: {file}: content hash ")


@pytest.mark.parametrize("version", ["0", "-1", "newest"])
def test_a_version_that_is_none_is_wrong_usage(streamcal, file: Path, version: str) -> None:
    assert streamcal("maps", "show", "--file", file, f"--version={version}").code == 2


def test_another_model_or_version_is_not_there(streamcal, file: Path) -> None:
    said = streamcal("maps", "show", "--file", file, "--model", "fraud")
    assert (said.code, said.err) == (1, f"streamcal: {file}: holds no map under key 'fraud'; keys: default\n")
    said = streamcal("maps", "show", "--file", file, "--version", "2")
    assert said.code == 1
    assert said.err.endswith("there is no version 2; versions kept there: 3\n")


def test_without_a_broker_or_a_file_the_configuration_is_asked_for(streamcal) -> None:
    said = streamcal("maps", "show")
    assert said.code == 2
    assert "kafka.bootstrap_servers: is required" in said.err


# --- the topic -----------------------------------------------------------------------------------------------


def published(kafka: str, topic: str, records: list[tuple[str, bytes | None]]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=kafka)
    for key, value in records:
        producer.send(topic, key=key.encode(), value=value).get(timeout=30)
    producer.close()


@pytest.fixture
def topic(kafka: str, topics: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> str:
    """A maps topic that the environment leads to."""
    (name,) = topics("maps")
    monkeypatch.setenv("STREAMCAL_KAFKA__BOOTSTRAP_SERVERS", kafka)
    monkeypatch.setenv("STREAMCAL_KAFKA__GROUP_ID", "maps-show")
    monkeypatch.setenv("STREAMCAL_TOPICS__MAPS", name)
    return name


@pytest.mark.kafka
def test_every_key_of_the_topic_is_shown_with_its_history(streamcal, kafka: str, topic: str) -> None:
    held = [("default", encode(document(v, slope=0.5 + v / 10))) for v in (1, 3, 2)]
    published(kafka, topic, [*held, ("fraud", encode(document(7, model="fraud")))])
    said = streamcal("maps", "show")
    assert (said.code, said.err) == (0, "")
    first, second = said.out.split("key  ")[1:]
    assert fields("key  " + first)["version"] == "3"  # the highest, whatever came last
    history = [line.split()[0] for line in first.splitlines() if line.startswith("  ") and line.strip()[:1].isdigit()]
    assert history == ["3", "2", "1"]
    assert fields("key  " + second)["map"] == "platt(intercept -0.25, slope 0.5)"


@pytest.mark.kafka
def test_one_version_of_one_key_is_shown_as_it_was_published(streamcal, kafka: str, topic: str) -> None:
    held = {version: encode(document(version)) for version in (1, 2)}
    published(kafka, topic, [("default", held[1]), ("default", held[2])])
    said = streamcal("maps", "show", "--model", "default", "--version", "1", "--json")
    assert said.out.encode() == held[1] + b"\n"


@pytest.mark.kafka
def test_what_cannot_be_read_is_said_and_the_rest_is_shown(streamcal, kafka: str, topic: str) -> None:
    published(kafka, topic, [("default", encode(document(1))), ("default", b"{}")])
    said = streamcal("maps", "show", "--json")
    assert said.code == 0
    assert said.out.encode() == encode(document(1)) + b"\n"
    assert said.err.startswith("key default: a document cannot be read: ")


@pytest.mark.kafka
def test_a_withdrawn_or_empty_topic_holds_no_map(streamcal, kafka: str, topic: str) -> None:
    published(kafka, topic, [("default", encode(document(1))), ("default", None)])
    said = streamcal("maps", "show")
    assert said.code == 1
    assert said.err.startswith(f"streamcal: topic {topic}: holds no map yet; ")


@pytest.mark.kafka
def test_a_topic_that_does_not_exist_is_named(streamcal, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMCAL_TOPICS__MAPS", "not-there-4711")
    said = streamcal("maps", "show")
    assert said.code == 4
    assert "there is no topic 'not-there-4711'; " in said.err
    assert said.err.count("\n") == 1
