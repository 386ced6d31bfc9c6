"""Documents from files: seen at once, seen again when they change, kept when they vanish."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import CalibrationTransformer, FileSource, MemorySource

WAIT_S = 30.0


def write(path: Path, version: int, model: str = "default") -> bytes:
    """Put a document in place as an operator should: written beside, then renamed."""
    data = encode(new_document(model, version, Platt(1.0, -version), at_ms=0))
    beside = path.with_suffix(".new")
    beside.write_bytes(data)
    beside.replace(path)
    return data


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    first = write(path, 1)
    source = FileSource(path)
    assert not source.caught_up
    assert [update.data for update in source.poll(0.0)] == [first]
    assert source.caught_up
    assert list(source.poll(0.0)) == []
    second = write(path, 2)
    assert [update.data for update in source.poll(0.0)] == [second]


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    write(path, 1)
    os.utime(path, ns=(0, 0))
    source = FileSource(path)
    source.poll(0.0)
    changed = write(path, 2)
    os.utime(path, ns=(0, 0))
    assert [update.data for update in source.poll(0.0)] == [changed]


def test_a_missing_file_is_no_failure_and_a_vanished_one_keeps_its_map(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    with CalibrationTransformer(FileSource(path)) as transformer:
        assert transformer.status().caught_up
        assert transformer.transform(0.5) == (0.5, 0)
        write(path, 1)
        assert transformer.wait_until(lambda status: "default" in status.maps, WAIT_S)
        path.unlink()
        write(tmp_path / "other.json", 2)
        assert transformer.transform(0.5)[1] == 1
        assert transformer.problems == {}


def test_a_changed_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    write(path, 1)
    with CalibrationTransformer(FileSource(path)) as transformer:
        assert transformer.transform(0.5) == (Platt(1.0, -1).apply_one(0.5), 1)
        write(path, 2)
        assert transformer.wait_until(lambda status: status.maps["default"].version == 2, WAIT_S)
        assert transformer.transform(0.5) == (Platt(1.0, -2).apply_one(0.5), 2)


def test_a_half_written_file_is_refused_and_read_again_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    data = write(path, 1)
    path.write_bytes(data[:40])
    with CalibrationTransformer(FileSource(path)) as transformer:
        assert transformer.problems == {"corrupt": 1}
        path.write_bytes(data)
        assert transformer.wait_until(lambda status: "default" in status.maps, WAIT_S)


def test_several_files_hold_several_models(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    write(paths[0], 3, "a")
    write(paths[1], 4, "b")
    with CalibrationTransformer(FileSource(*paths)) as transformer:
        assert transformer.transform(0.5, "a")[1] == 3
        assert transformer.transform(0.5, "b")[1] == 4


def test_no_path_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FileSource()


def test_memory_is_caught_up_once_it_is_read() -> None:
    source = MemorySource()
    source.publish("default", b"x")
    assert not source.caught_up
    assert [update.data for update in source.poll(0.0)] == [b"x"]
    assert source.caught_up


def test_an_interrupted_source_does_not_wait(tmp_path: Path) -> None:
    memory, file = MemorySource(), FileSource(tmp_path / "none.json")
    for source in (memory, file):
        source.poll(0.0)
        source.interrupt()
        assert list(source.poll(3600.0)) == []
