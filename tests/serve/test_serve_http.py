"""Driven over real loopback sockets on free ports."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from email.message import Message
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamcal.errors import ServeError
from streamcal.serve.app import application
from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector
from streamcal.serve.http import HttpServer
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import ExportSettings
from streamcal.serve.sources import Sources

COUNTS = {"default": {"layout": "abc", "n": np.array([1, 2**53 + 1]), "total": np.int64(7)}, "other": {"n": []}}


@pytest.fixture
def readiness():
    return Readiness()


@pytest.fixture
def holder():
    return SnapshotHolder()


@pytest.fixture
def exporter(holder, readiness):
    return Exporter(holder, ExportSettings(), ProcessCollector(BuildInfo("1", "l"), readiness, CommitRecorder()))


@pytest.fixture
def app(exporter, holder, readiness):
    def make(counts=None):
        return application(Sources(exporter, holder, readiness, "1.2.3", counts))

    return make


@pytest.fixture
def server(app):
    with HttpServer(app(lambda: COUNTS), port=0) as running:
        yield running


def get(server: HttpServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = Request(server.url + path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    try:
        with urlopen(request, timeout=20) as response:
            return response.status, titled(response.headers), response.read()
    except HTTPError as error:
        with error:
            return error.code, titled(error.headers), error.read()


def titled(headers: Message) -> dict[str, str]:
    return {name.title(): value for name, value in headers.items()}


def send(server: HttpServer, request: bytes) -> bytes:
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_metrics_are_the_newest_snapshot_in_the_text_format(server, holder, exporter, snapshot, model):
    holder.publish(snapshot(model("m")))
    status, headers, body = get(server, "/metrics")
    assert (status, body) == (200, exporter.text())
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert {family.name for family in text_string_to_metric_families(body.decode())} >= {"streamcal_refits"}


@pytest.mark.parametrize(
    ("accept", "packed"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=1.0", True), ("gzip;q=0", False), ("gzip; q=0.0", False),
     ("br", False), ("", False)],
)  # fmt: skip
def test_metrics_are_compressed_for_whoever_accepts_it(server, holder, exporter, snapshot, model, accept, packed):
    holder.publish(snapshot(model("m")))
    _, headers, body = get(server, "/metrics", Accept_Encoding=accept)
    assert headers.get("Content-Encoding") == ("gzip" if packed else None)
    assert (gzip.decompress(body) if packed else body) == exporter.text()


def test_many_scrapes_at_once_render_once_and_agree(server, holder, exporter, snapshot, model):
    holder.publish(snapshot(model("m")))
    with ThreadPoolExecutor(8) as pool:
        bodies = {body for _, _, body in pool.map(lambda _: get(server, "/metrics"), range(40))}
    assert len(bodies) == 1
    assert exporter.rendered == 1


def test_health_is_ok_while_the_process_lives(server):
    assert get(server, "/healthz")[::2] == (200, b"ok\n")


def test_readiness_follows_the_process_and_says_why_not(server, readiness):
    assert get(server, "/readyz")[::2] == (503, b"not ready: starting\n")
    readiness.ready()
    assert get(server, "/readyz")[::2] == (200, b"ready\n")
    readiness.not_ready("broker away")
    assert get(server, "/readyz")[::2] == (503, b"not ready: broker away\n")


def test_counts_are_exact_integers_of_one_model_or_of_all(server):
    status, headers, body = get(server, "/api/v1/counts?model=default")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"default": {"layout": "abc", "n": [1, 9007199254740993], "total": 7}}
    assert set(json.loads(get(server, "/api/v1/counts")[2])) == {"default", "other"}


def test_counts_of_an_unknown_model_are_not_found(server):
    status, _, body = get(server, "/api/v1/counts?model=no%22ne")
    assert status == 404
    assert json.loads(body)["models"] == ["default", "other"]


def test_without_a_source_of_counts_there_are_none(app):
    with HttpServer(app(), port=0) as running:
        assert json.loads(get(running, "/api/v1/counts")[2]) == {}


def test_an_unknown_path_names_the_known_ones_and_not_itself(server):
    status, _, body = get(server, "/<script>")
    assert status == 404
    assert b"/metrics" in body
    assert b"script" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"])
def test_other_methods_are_refused(server, method):
    with closing(http.client.HTTPConnection(server.host, server.port, timeout=20)) as connection:
        connection.request(method, "/metrics")
        response = connection.getresponse()
        assert response.status == 405
        assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}


def test_head_answers_without_a_body(server, exporter):
    answer = send(server, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert f"content-length: {len(exporter.text())}".encode() in head.lower()
    assert body == b""


@pytest.mark.parametrize(
    "request_line",
    [b"GET /metrics", b"\xff\x00", b"GET  HTTP/9", b"GET / HTTP/2.0", b"GET http://[ HTTP/1.1", b"", b"POST /"],
)
def test_a_malformed_request_is_answered_or_closed_and_the_next_one_served(server, request_line):
    answer = send(server, request_line + b"\r\n\r\n")
    assert b"200 OK" not in answer.partition(b"\r\n")[0]
    assert b"<" not in answer
    assert get(server, "/healthz")[0] == 200


def test_a_head_beyond_16_kib_is_refused(server):
    start = b"GET /metrics HTTP/1.1\r\nX: "
    assert send(server, start + b"x" * (16_385 - len(start))).startswith(b"HTTP/1.1 400")
    assert get(server, "/healthz")[0] == 200


def test_a_body_beyond_16_kib_is_refused_whether_or_not_its_length_is_told(server):
    head = b"POST /api/v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    told = send(server, head + b"Content-Length: 16385\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 413")
    chunk = b"4001\r\n" + b" " * 0x4001 + b"\r\n0\r\n\r\n"
    untold = send(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
    assert untold.startswith(b"HTTP/1.1 413")


def test_a_client_that_leaves_half_way_harms_nobody(server, capfd):
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b"GET /metr")
    assert get(server, "/healthz")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_connections_beyond_the_limit_are_closed_at_once_and_free_up_again(server):
    idle = [socket.create_connection((server.host, server.port), timeout=20) for _ in range(64)]
    try:
        with socket.create_connection((server.host, server.port), timeout=5) as one_more:
            assert closed(one_more)
        idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle[0].recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in idle:
            connection.close()
    assert eventually(lambda: get(server, "/healthz")[0] == 200)


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def eventually(holds: Callable[[], bool]) -> bool:
    for _ in range(1000):
        try:
            if holds():
                return True
        except OSError:  # the server has not seen yet that others left
            pass
        time.sleep(0.02)
    return False


def test_a_head_that_does_not_come_is_waited_for_only_so_long(server, monkeypatch):
    monkeypatch.setattr("streamcal.serve.http._READ_S", 0.1)
    with socket.create_connection((server.host, server.port), timeout=20) as silent:
        assert closed(silent)
    with socket.create_connection((server.host, server.port), timeout=20) as half:
        half.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert closed(half)
    with closing(http.client.HTTPConnection(server.host, server.port, timeout=20)) as kept:
        for _ in range(2):  # the second on the same connection, longer after its start than a head may take
            kept.request("GET", "/healthz")
            assert kept.getresponse().read() == b"ok\n"
        assert kept.sock is not None
        kept.sock.sendall(b"GET /hea")
        assert closed(kept.sock)


def test_an_answer_that_is_not_read_is_given_up(app, holder, snapshot, model, monkeypatch):
    monkeypatch.setattr("streamcal.serve.http._WRITE_S", 0.1)
    large = {f"m{i}": {"n": list(range(5000))} for i in range(400)}  # 10 MB, more than any socket buffers
    with HttpServer(app(lambda: large), port=0) as server:
        held = server._server.server_state.connections
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what the kernel grows may take it all
            greedy.settimeout(20)
            greedy.connect((server.host, server.port))
            greedy.sendall(b"GET /api/v1/counts HTTP/1.1\r\nHost: localhost\r\n\r\n")
            port = greedy.getsockname()[1]

            def held_ports() -> set[int]:
                assert get(server, "/healthz")[0] == 200
                return {one.client[1] for one in list(held)}

            assert eventually(lambda: port in held_ports())
            assert eventually(lambda: port not in held_ports())


def test_nothing_is_logged_for_a_request(server, capfd):
    get(server, "/metrics")
    get(server, "/nowhere")
    assert capfd.readouterr() == ("", "")


def test_a_fault_in_a_route_answers_500_and_is_shown(app, caplog):
    def broken() -> dict[str, int]:
        raise KeyError("promise broken")

    with HttpServer(app(broken), port=0) as running:
        assert get(running, "/api/v1/counts")[0] == 500
        assert get(running, "/healthz")[0] == 200
    assert "promise broken" in caplog.text


def test_a_port_in_use_is_one_clear_error(app):
    table = app()
    with HttpServer(table, port=0) as running, pytest.raises(ServeError) as caught:
        HttpServer(table, port=running.port)
    assert f"127.0.0.1:{running.port}" in str(caught.value)
    assert "serve.port" in caught.value.hint
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_one_clear_error(app, host):
    with pytest.raises(ServeError) as caught:
        HttpServer(app(), host=host, port=0)
    assert host in str(caught.value)
    assert "serve.host" in caught.value.hint


def test_leaving_frees_the_port(app):
    table = app()
    with HttpServer(table, port=0) as running:
        port = running.port
        assert get(running, "/healthz")[0] == 200
    with HttpServer(table, port=port) as again:
        assert get(again, "/healthz")[0] == 200


def test_ipv6_loopback_is_served_where_there_is_one(app):
    try:
        running = HttpServer(app(), host="::1", port=0)
    except ServeError:
        pytest.skip("no IPv6 here")
    with running:
        assert running.url.startswith("http://[::1]:")
        assert get(running, "/healthz")[0] == 200
