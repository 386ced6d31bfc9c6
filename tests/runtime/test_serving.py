"""What the section `serve` of the configuration comes to: address, allowed names, token, HTTPS."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from streamcal.errors import ServeError, StreamcalError
from streamcal.runtime.config import Config
from streamcal.runtime.config_sections import Serve
from streamcal.runtime.serving import http_application, http_server
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder

TOKEN = "5f2d8a90c1b34e67"


def app_of(serve: Serve):
    return http_application(Config(serve=serve), SnapshotHolder(), Readiness(), CommitRecorder())


def key_pair(folder, *, password: bytes | None = None):
    """Self-signed certificate of 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "streamcal")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    hidden = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
    return files


def test_https_is_served_with_the_configured_certificate(tmp_path):
    certificate, key = key_pair(tmp_path)
    serve = Serve(port=0, tls_cert_file=certificate, tls_key_file=key)
    with http_server(app_of(serve), serve) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        trusting = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"{server.url}/healthz", verify=trusting).text == "ok\n"
        with socket.create_connection((server.host, server.port), timeout=20) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in plain.recv(1000)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(certificate)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz", verify=old)


@pytest.mark.parametrize("fault", ["no certificate", "another key", "a password", "gone"])
def test_a_certificate_that_cannot_be_used_is_one_clear_error(tmp_path, fault):
    certificate, key = key_pair(tmp_path, password=b"secret" if fault == "a password" else None)
    if fault == "no certificate":
        certificate.write_text("nothing of the kind")
    elif fault == "another key":
        (tmp_path / "other").mkdir()
        key = key_pair(tmp_path / "other")[1]
    elif fault == "gone":
        key.unlink()
    serve = Serve(port=0, tls_cert_file=certificate, tls_key_file=key)
    with pytest.raises(ServeError) as caught:
        http_server(app_of(serve), serve)
    assert "cannot serve HTTPS" in str(caught.value)
    assert "serve.tls_cert_file" in caught.value.hint
    assert str(certificate) in str(caught.value)


def test_the_configured_names_are_answered_and_others_are_not():
    serve = Serve(port=0, host="localhost", allowed_hosts=("mon.example.org",))
    with http_server(app_of(serve), serve) as server:
        for host, status in (("mon.example.org", 200), ("localhost", 200), ("other.example.org", 421)):
            assert httpx.get(f"{server.url}/", headers={"Host": host}).status_code == status


def test_the_token_is_the_content_of_its_file_without_the_line_feed(tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    serve = Serve(port=0, admin_token_file=tmp_path / "token")
    with http_server(app_of(serve), serve) as server:
        assert httpx.get(f"{server.url}/api/v1/status").json()["read_only"] is False
        ask = {"what": "refit", "model": "default"}
        for token, status in ((TOKEN, 501), (f"{TOKEN}x", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            assert httpx.post(f"{server.url}/api/v1/requests", json=ask, headers=headers).status_code == status


@pytest.mark.parametrize("content", ["", "short", "two words of some length", "ümlaut-and-more-of-it", None])
def test_a_token_that_is_none_is_one_clear_error_which_does_not_show_it(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(StreamcalError) as caught:
        app_of(Serve(admin_token_file=tmp_path / "token"))
    assert "serve.admin_token_file" in str(caught.value)
    assert not content or content not in str(caught.value)


def test_the_port_of_a_command_goes_before_the_configured_one():
    serve = Serve(port=9)
    with http_server(app_of(serve), serve, 0) as server:
        assert server.port > 1023
