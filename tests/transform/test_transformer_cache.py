"""Documents kept on disk: a restart without the source serves what was served before, and says since when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamcal.errors import StreamcalError
from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.maps.signing import Verifier, sign_record
from streamcal.maps.signing_keys import HmacKey
from streamcal.transform import CalibrationTransformer, MapUpdate, MemorySource
from streamcal.transform.cache import MapCache

WAIT_S = 30.0


def document(version: int, model: str = "default") -> bytes:
    return encode(new_document(model, version, Platt(1.0, -version / 10), at_ms=1000 * version))


def served(version: int) -> float:
    return Platt(1.0, -version / 10).apply_one(0.5)


class Silent(MemorySource):
    """A source without its broker, until `back`."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        if not self.back.is_set():
            raise ConnectionError("no broker")
        return super().poll(timeout_s)


class Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def holding(*documents: tuple[str, bytes]) -> MemorySource:
    source = MemorySource()
    for model, data in documents:
        source.publish(model, data)
    return source


def test_a_restart_without_the_source_serves_the_last_good_map(tmp_path: Path) -> None:
    names = ["default", "a/b", "é" * 300, ".."]
    with CalibrationTransformer(holding(*((name, document(3, name)) for name in names)), cache=tmp_path) as first:
        assert all(not known.cached for known in first.status().maps.values())
    with CalibrationTransformer(Silent(), cache=tmp_path) as second:
        for name in names:
            assert second.transform(0.5, name) == (served(3), 3)
        status = second.status()
    assert all(known.cached for known in status.maps.values())
    assert status.problems == {"source": 1} or status.problems["source"] > 1
    assert not status.caught_up


def test_the_source_confirms_or_replaces_what_was_cached(tmp_path: Path) -> None:
    with CalibrationTransformer(holding(("a", document(3, "a")), ("b", document(3, "b"))), cache=tmp_path):
        pass
    source = holding(("a", document(2, "a")), ("a", document(3, "a")), ("b", document(4, "b")))
    with CalibrationTransformer(source, cache=tmp_path) as transformer:
        status = transformer.status()
    assert [(known.version, known.cached) for known in (status.maps["a"], status.maps["b"])] == [(3, False), (4, False)]
    with CalibrationTransformer(Silent(), cache=tmp_path) as transformer:
        assert transformer.transform(0.5, "b") == (served(4), 4)


def test_an_older_document_of_the_source_does_not_replace_a_cached_one(tmp_path: Path) -> None:
    with CalibrationTransformer(holding(("default", document(9))), cache=tmp_path):
        pass
    with CalibrationTransformer(holding(("default", document(8))), cache=tmp_path) as transformer:
        assert transformer.transform(0.5) == (served(9), 9)
        assert transformer.status().maps["default"].cached


def test_what_was_withdrawn_does_not_come_back(tmp_path: Path) -> None:
    source = holding(("default", document(3)))
    source.publish("default", None)
    with CalibrationTransformer(source, cache=tmp_path):
        pass
    with CalibrationTransformer(Silent(), cache=tmp_path) as transformer:
        assert transformer.transform(0.5) == (0.5, 0)


def test_a_damaged_or_foreign_file_is_counted_and_the_others_serve(tmp_path: Path) -> None:
    with CalibrationTransformer(holding(("a", document(3, "a")), ("b", document(3, "b"))), cache=tmp_path):
        pass
    files = sorted(tmp_path.glob("*.map.json"))
    damaged = next(path for path in files if b'"model":"a"' in path.read_bytes())
    damaged.write_bytes(damaged.read_bytes()[:100])
    (tmp_path / "notes.txt").write_text("not ours")
    with CalibrationTransformer(Silent(), cache=tmp_path) as transformer:
        assert transformer.transform(0.5, "a") == (0.5, 0)
        assert transformer.transform(0.5, "b")[1] == 3
        assert transformer.problems["corrupt"] == 1


def test_a_cached_file_is_verified_like_any_document(tmp_path: Path) -> None:
    key = HmacKey(b"k" * 32)
    with CalibrationTransformer(holding(("default", document(3))), cache=tmp_path):
        pass
    with CalibrationTransformer(Silent(), cache=tmp_path, verifier=Verifier([key])) as transformer:
        assert transformer.transform(0.5) == (0.5, 0)
        assert transformer.problems["bad_signature"] == 1
    signed = holding(("default", sign_record("default", document(2), key)))
    with CalibrationTransformer(signed, cache=tmp_path, verifier=Verifier([key])):
        pass
    with CalibrationTransformer(Silent(), cache=tmp_path, verifier=Verifier([key])) as transformer:
        assert transformer.transform(0.5) == (served(2), 2)


def test_a_directory_that_cannot_be_written_to_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamcalError, match="cannot be written to"):
        CalibrationTransformer(MemorySource(), cache=tmp_path / "file" / "below")


def test_a_cache_that_fails_later_is_counted_and_maps_are_served_all_the_same(tmp_path: Path) -> None:
    source = holding(("default", document(1)))
    with CalibrationTransformer(source, cache=tmp_path / "maps") as transformer:
        for path in (tmp_path / "maps").iterdir():
            path.unlink()
        (tmp_path / "maps").rmdir()
        source.publish("default", document(2))
        assert transformer.wait_until(lambda status: "cache" in status.problems, WAIT_S)
        assert transformer.transform(0.5) == (served(2), 2)


def test_what_a_killed_process_left_unfinished_is_removed_after_an_hour(tmp_path: Path) -> None:
    for name, age_s in ((".a.tmp", 4000.0), (".b.tmp", 10.0)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (100_000.0 - age_s, 100_000.0 - age_s))
    assert list(MapCache(tmp_path).read(100_000.0)) == []
    assert [path.name for path in tmp_path.iterdir()] == [".b.tmp"]


WRITER = """
import sys
from streamcal.transform.cache import MapCache
documents = sys.stdin.buffer.read().splitlines()
cache = MapCache(sys.argv[1])
print("ready", flush=True)
while True:
    for data in documents:
        cache.put("default", data)
"""


def test_a_process_killed_while_it_writes_leaves_a_whole_document(tmp_path: Path) -> None:
    documents = [document(1), encode(new_document("default", 2, Platt(1.0, -0.2), at_ms=0, evidence={"x" * 9000: 1.0}))]
    for _ in range(5):
        run = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(b"\n".join(documents))
        run.stdin.close()
        assert run.stdout.readline() == b"ready\n"
        kept = next(path for path in iter(lambda: next(tmp_path.glob("*.map.json"), None), 1) if path is not None)
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
        assert kept.read_bytes() in documents


# -- silence --------------------------------------------------------------------------------------------------


def test_silence_makes_maps_stale_and_they_are_set_aside_where_asked(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    with CalibrationTransformer(holding(("default", document(3))), cache=tmp_path, clock=clock):
        pass
    clock.now_s = 1700.0
    for when_stale, expected in (("last_good", (served(3), 3)), ("identity", (0.5, 0))):
        source = Silent()
        with CalibrationTransformer(
            source, cache=tmp_path, stale_after_s=600.0, when_stale=when_stale, clock=clock
        ) as transformer:
            assert transformer.transform(0.5) == expected
            status = transformer.status()
            assert status.stale
            assert status.silent_s == pytest.approx(700.0, abs=1.0)
            assert status.maps["default"].version == 3
            assert status.unmapped_by == {"no_map": 0, "unknown_model": 0, "stale": int(when_stale == "identity")}
    source = Silent()
    with CalibrationTransformer(
        source, cache=tmp_path, stale_after_s=600.0, when_stale="identity", clock=clock
    ) as transformer:
        source.back.set()
        assert transformer.wait_until(lambda status: not status.stale, WAIT_S)
        assert transformer.transform(0.5) == (served(3), 3)


def test_a_source_that_falls_silent_is_noticed_while_it_runs() -> None:
    clock, source = Clock(1000.0), Silent()
    source.back.set()
    source.publish("default", document(3))
    with CalibrationTransformer(source, stale_after_s=60.0, when_stale="identity", clock=clock) as transformer:
        assert transformer.transform(0.5)[1] == 3
        source.back.clear()
        failed = transformer.problems.get("source", 0)
        assert transformer.wait_until(lambda status: status.problems.get("source", 0) > failed, WAIT_S)
        assert transformer.transform(0.5)[1] == 3
        clock.now_s = 1061.0
        failed = transformer.problems["source"]
        assert transformer.wait_until(lambda status: status.problems["source"] > failed + 1, WAIT_S)
        assert transformer.transform(0.5) == (0.5, 0)
        source.back.set()
        assert transformer.wait_until(lambda status: not status.stale, WAIT_S)
        assert transformer.transform(0.5)[1] == 3


def test_a_quiet_source_that_answers_is_not_stale() -> None:
    clock, source = Clock(1000.0), holding(("default", document(3)))
    with CalibrationTransformer(source, stale_after_s=60.0, when_stale="identity", clock=clock) as transformer:
        clock.now_s = 10_000_000.0
        assert transformer.wait_until(lambda status: status.silent_s == 0.0, WAIT_S)
        assert transformer.transform(0.5)[1] == 3
        assert transformer.status().age_s("default") == 10_000_000.0 - 3.0


def test_cached_maps_that_nobody_ever_confirmed_are_as_stale_as_can_be(tmp_path: Path) -> None:
    MapCache(tmp_path).put("default", document(3))
    with CalibrationTransformer(
        Silent(), cache=tmp_path, stale_after_s=1e6, when_stale="identity", clock=Clock(2e9)
    ) as transformer:
        assert transformer.transform(0.5) == (0.5, 0)


@pytest.mark.parametrize("options", [{"stale_after_s": 0.0}, {"stale_after_s": float("nan")}, {"when_stale": "panic"}])
def test_options_that_mean_nothing_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"stale"):
        CalibrationTransformer(MemorySource(), **options)  # type: ignore[arg-type]
