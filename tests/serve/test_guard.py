"""Who is answered, and what every answer carries."""

from __future__ import annotations

import httpx
import pytest
from served_snapshots import sources_of

from streamcal.serve.app import application
from streamcal.serve.http import HttpServer
from streamcal.serve.live import SnapshotHolder
from streamcal.serve.sources import Access


@pytest.fixture(scope="module")
def client():
    app = application(sources_of(SnapshotHolder()), Access(allowed_hosts=["streamcal.example.org", "MON"]))
    with HttpServer(app, port=0) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9871", "LocalHost.", "127.0.0.1", "127.0.0.1:9871", "10.1.2.3:80", "[::1]:9871",
     "[fe80::1]", "streamcal.example.org", "STREAMCAL.example.org:443", "mon"],
)  # fmt: skip
def test_addresses_localhost_and_allowed_names_are_answered(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example.org", "localhost.evil.example.org", "x.streamcal.example.org", "streamcal.example.org.evil", "",
     "127.0.0.1.evil.org", "evil.org:127.0.0.1", "[::1].evil.org", "[evil.org]", "localhost@evil.org", "*",
     "127.0.0.1, x"],
)  # fmt: skip
def test_other_names_are_refused_without_being_repeated(client, host):
    for path in ("/", "/api/v1/status", "/api/v1/counts", "/assets/charts.js", "/nowhere"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 421
        assert "serve.allowed_hosts" in answer.json()["detail"]
        assert not host or host not in answer.text


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_metrics_and_probes_answer_under_any_name(client, path):
    assert client.get(path, headers={"Host": "pod-7.cluster.local:9871"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/api/v1/status", "/api/v1/openapi.json", "/nowhere", "/assets/d3.min.js"]
)
def test_every_answer_forbids_foreign_scripts_frames_and_sniffing(client, path):
    headers = (
        client.get(path).headers if path == "/metrics" else client.get(path, headers={"Host": "localhost"}).headers
    )
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert (policy["script-src"], policy["style-src"], policy["connect-src"]) == ("'self'", "'self'", "'self'")
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "d3.LICENSE", "report.js", "charts.js/", "", "%00"])
def test_only_the_files_of_the_page_are_served(client, name):
    assert client.get(f"/assets/{name}", headers={"Host": "localhost"}).status_code == 404
