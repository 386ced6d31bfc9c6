"""`streamcal maps refit|promote|rollback|pin|unpin` against the daemon's HTTP side over a real socket."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_secure import Authority
from served_loop import TOKEN, ServedLoop

from streamcal.cli.maps_words import REASONS
from streamcal.maps.policy import REFUSALS
from streamcal.serve.http import Tls


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n", encoding="ascii")
    return path


@pytest.fixture
def served() -> Iterator[ServedLoop]:
    with ServedLoop() as loop:
        yield loop


def at(served: ServedLoop, token: Path) -> tuple[object, ...]:
    return "--url", served.url, "--token-file", token


def test_a_promotion_shows_what_moves_and_is_kept_with_who_and_why(streamcal, served, token) -> None:
    before = served.loop.champion.map_
    version = served.loop.version
    said = streamcal(
        "maps",
        "promote",
        "--family",
        "cir",
        "--why",
        "a test",
        "--who",
        "ada",
        "--yes",
        "--cut-off",
        0.5,
        *at(served, token),
    )
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith(f"default: promote: done, version {version + 1}\n")
    entry = served.loop.history[-1]
    assert (entry.version, entry.family, entry.who, entry.why) == (version + 1, "cir", "ada", "a test")
    # Means and shares of the rows themselves.
    after = served.loop.champion.map_
    for map_, place in ((before, 0), (after, 1)):
        told = line_of(said.out, "mean score")[place]
        assert float(told) == pytest.approx(map_.apply(served.scores).mean(), rel=1e-3)
        share = float(line_of(said.out, "share at or above 0.5")[place].rstrip("%")) / 100
        assert share == pytest.approx((map_.apply(served.scores) >= 0.5).mean(), abs=0.01)


def line_of(out: str, begin: str) -> list[str]:
    (line,) = (line for line in out.splitlines() if line.startswith(begin))
    before, after = line.removeprefix(begin).split("->")
    return [before.strip(), after.split()[0]]


@pytest.mark.parametrize(("answer", "version"), [("y\n", 1), ("n\n", 0), ("", 0)])
def test_without_yes_a_promotion_asks_first(streamcal, served, token, monkeypatch, answer: str, version: int) -> None:
    before = served.loop.version
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    said = streamcal("maps", "promote", "--family", "cir", "--why", "a test", *at(served, token))
    assert said.code == (0 if version else 1)
    assert served.loop.version == before + version
    assert version or "nothing was changed" in said.err


def test_going_back_and_pins_are_done_and_told(streamcal, served, token) -> None:
    parent = served.loop.champion.parent
    said = streamcal("maps", "rollback", "--why", "too many declined", *at(served, token))
    assert said.code == 0
    assert served.loop.champion.map_ == parent
    assert "`streamcal maps pin`" in said.out
    assert streamcal("maps", "pin", "--why", "inquiry", *at(served, token)).out == "default: pin: done, pinned\n"
    assert served.loop.pinned
    assert streamcal("maps", "pin", "--why", "again", *at(served, token)).out == "default: pin: done, pinned already\n"
    assert streamcal("maps", "unpin", *at(served, token)).out == "default: unpin: done, unpinned\n"
    assert not served.loop.pinned
    assert [(e.reason, e.why) for e in served.loop.history if e.trigger == "manual"] == [
        ("rollback", "too many declined"),
        ("pin", "inquiry"),
        ("unpin", ""),
    ]


def test_a_refusal_says_why_and_what_to_do_and_is_an_error(streamcal, served, token) -> None:
    said = streamcal("maps", "refit", *at(served, token))
    assert said.code == 1
    assert said.err.startswith("streamcal: default: refit: refused: no_gain: no family has been better")
    assert "maps diff" in said.err
    said = streamcal("maps", "rollback", 4711, "--why", "x", *at(served, token))
    assert said.code == 1
    assert "version 4711" in said.err
    assert "versions kept: " in said.err
    said = streamcal("maps", "promote", 4711, "--why", "x", "--yes", *at(served, token))
    assert (said.code, "there is no version 4711" in said.err) == (1, True)


def test_every_reason_of_a_refusal_has_words() -> None:
    assert REFUSALS
    assert set(REFUSALS) <= REASONS.keys()
    assert all(what and hint for what, hint in REASONS.values())


def test_the_candidate_in_shadow_is_promoted_by_the_number_that_was_shown(streamcal, token) -> None:
    with ServedLoop(mode="shadow") as served:
        candidate = served.loop.candidate.document
        assert served.loop.state() is None
        said = streamcal("maps", "promote", "--why", "it held up", "--yes", *at(served, token))
        assert (said.code, said.err) == (0, "")
        assert f"version {candidate.version}" in said.out
        promoted = served.loop.champion.document
        assert (promoted.parameters, promoted.counts) == (candidate.parameters, candidate.counts)
        again = streamcal("maps", "promote", "--why", "twice", "--yes", *at(served, token))
        assert (again.code, f"already, as version {promoted.version}" in again.err) == (1, True)


def test_without_a_candidate_there_is_nothing_to_promote(streamcal, served, token) -> None:
    said = streamcal("maps", "promote", "--why", "x", "--yes", *at(served, token))
    assert (said.code, "no candidate in shadow" in said.err) == (1, True)


# --- what cannot be asked ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["promote", "rollback", "pin"])
def test_why_is_asked_for(streamcal, served, token, what: str) -> None:
    assert streamcal("maps", what, *at(served, token)).code == 2
    said = streamcal("maps", what, "--why", "  ", *at(served, token))
    assert (said.code, "say why" in said.err) == (2, True)
    assert not [entry for entry in served.loop.history if entry.trigger == "manual"]


def test_the_token_is_asked_for_and_must_be_right(streamcal, served, tmp_path) -> None:
    said = streamcal("maps", "refit", "--url", served.url)
    assert (said.code, "serve.admin_token_file" in said.err) == (1, True)
    wrong = tmp_path / "wrong"
    wrong.write_text("x" * 16, encoding="ascii")
    said = streamcal("maps", "refit", "--url", served.url, "--token-file", wrong)
    assert (said.code, "token is not that of the daemon" in said.err) == (1, True)
    said = streamcal("maps", "refit", "--url", served.url, "--token-file", tmp_path / "none")
    assert (said.code, "cannot be read: No such file" in said.err) == (1, True)
    wrong.write_text("two words", encoding="ascii")
    assert "one word" in streamcal("maps", "refit", "--url", served.url, "--token-file", wrong).err


def test_a_read_only_daemon_says_what_to_set(streamcal, token) -> None:
    with ServedLoop(admin_token=None) as served:
        said = streamcal("maps", "pin", "--why", "x", *at(served, token))
    assert (said.code, "read-only" in said.err, "serve.admin_token_file" in said.err) == (1, True, True)


def test_where_nobody_listens_the_address_is_named(streamcal, token) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    said = streamcal("maps", "refit", "--url", f"http://127.0.0.1:{port}", "--token-file", token)
    assert said.code == 10
    assert f"http://127.0.0.1:{port}: no daemon answers: Connection refused" in said.err
    assert streamcal("maps", "refit", "--url", "127.0.0.1:80", "--token-file", token).code == 2


def test_over_tls_the_certificate_is_checked_by_what_is_trusted(streamcal, token, tmp_path) -> None:
    authority = Authority.new(tmp_path)
    certificate, key = authority.issue("daemon", "127.0.0.1")
    with ServedLoop(tls=Tls(certificate, key)) as served:
        said = streamcal("maps", "pin", "--why", "x", *at(served, token))
        assert (said.code, "its certificate is not trusted" in said.err) == (10, True)
        assert not served.loop.pinned
        said = streamcal("maps", "pin", "--why", "x", "--ca-file", authority.ca, *at(served, token))
        assert (said.code, said.out) == (0, "default: pin: done, pinned\n")
        said = streamcal(
            "maps", "pin", "--why", "x", "--url", served.url.replace("https", "http"), "--token-file", token
        )
        assert said.code == 10


def test_the_address_and_the_token_come_from_the_configuration(streamcal, served, token, tmp_path) -> None:
    config = tmp_path / "config.yaml"
    port = served.url.rpartition(":")[2]
    config.write_text(f"serve: {{host: 0.0.0.0, port: {port}, admin_token_file: {token}}}\n", encoding="utf-8")
    assert streamcal("maps", "pin", "--why", "x", "--config", config).code == 0
    assert served.loop.history[-1].who
    config.write_text(f"serve: {{port: 0, admin_token_file: {token}}}\n", encoding="utf-8")
    said = streamcal("maps", "pin", "--why", "x", "--config", config)
    assert (said.code, "serve.port: the configuration names no port" in said.err) == (1, True)


def test_a_process_that_does_not_aggregate_or_is_not_ready_is_told_from_one_that_does(streamcal, served, token) -> None:
    served.holder.withdraw()
    said = streamcal("maps", "refit", *at(served, token))
    assert (said.code, "it does not aggregate" in said.err, "--url" in said.err) == (10, True, True)
    served.sources.readiness.not_ready("recovering counts 0")
    said = streamcal("maps", "refit", *at(served, token))
    assert (said.code, "is not ready: recovering counts 0" in said.err) == (10, True)


def test_another_model_is_refused_with_those_there_are(streamcal, served, token) -> None:
    said = streamcal("maps", "refit", "--model", "nobody", *at(served, token))
    assert (said.code, "models: default" in said.err) == (1, True)


def test_a_wait_that_is_over_says_that_it_may_yet_be_done(streamcal, served, token) -> None:
    served.carries_out = False
    said = streamcal("maps", "pin", "--why", "x", "--wait", 0.3, *at(served, token))
    assert (said.code, "waits still" in said.err) == (10, True)


class Scripted:
    """Answers each connection with the next of some answers, as a daemon that is started anew in between would."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self._answers = answers
        self.heard: list[bytes] = []

    def __enter__(self) -> Scripted:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        for status, answer in self._answers:
            asking, _ = self._socket.accept()
            with asking:
                self.heard.append(asking.recv(65536))
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                head = f"HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {len(body)}\r\n"
                asking.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)


STATUS = (200, {"sequence": 1, "models": [{"name": "default"}]})
WAITING = {"number": 1, "state": "waiting", "detail": "", "what": "refit", "model": "default", "who": "ada", "why": ""}


def ask(streamcal, scripted: Scripted, token: Path) -> Any:
    return streamcal("maps", "refit", "--who", "ada", "--url", scripted.url, "--token-file", token)


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ([(404, {"detail": "no such request, or it was long ago"})], "went away"),
        ([(200, WAITING | {"who": "bob", "state": "done"})], "started anew"),
    ],
)
def test_what_became_of_a_request_that_a_daemon_forgot_is_not_known(streamcal, token, answers, word) -> None:
    with Scripted(STATUS, (202, WAITING), *answers) as scripted:
        said = ask(streamcal, scripted, token)
    assert (said.code, word in said.err, "done or not" in said.err) == (10, True, True)


def test_the_token_follows_no_redirect_and_goes_only_with_requests(streamcal, token) -> None:
    with Scripted(STATUS, (307, b"")) as scripted:
        said = ask(streamcal, scripted, token)
    assert (said.code, "not as streamcal does" in said.err) == (10, True)
    assert TOKEN.encode() not in scripted.heard[0]
    assert TOKEN.encode() in scripted.heard[1]


def test_what_others_wrote_cannot_steer_the_terminal(streamcal, token) -> None:
    hostile = WAITING | {"state": "done", "detail": "\x1b[2J\r\nfine"}
    with Scripted(STATUS, (202, hostile)) as scripted:
        said = ask(streamcal, scripted, token)
    assert (said.code, said.out) == (0, "default: refit: done, ?[2J??fine\n")
