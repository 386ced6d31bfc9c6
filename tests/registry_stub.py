"""A schema registry for tests: the few addresses the client asks, over HTTP on loopback, with faults on request."""

from __future__ import annotations

import base64
import io
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro

__all__ = ["RegistryStub", "running_registry", "wire"]


class RegistryStub:
    """What the registry holds and how it behaves.

    Attributes
    ----------
    asked : list of str
        Every path asked for, in order.
    failures : list of int
        HTTP states to answer with, one per request, before behaving again; 0 drops the connection.
    user : str or None
        ``user:password`` that must be sent.
    page : bytes or None
        Answered to everything, as a proxy in the way would.
    redirect : str or None
        Where everything is sent.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.failures: list[int] = []
        self.user: str | None = None
        self.page: bytes | None = None
        self.redirect: str | None = None
        self.url = ""

    def register(self, number: int, schema: Any, kind: str = "AVRO", references: list[Any] | None = None) -> None:
        held: dict[str, Any] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if kind != "AVRO":
            held["schemaType"] = kind
        if references:
            held["references"] = references
        self.schemas[number] = held

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        self.authorizations.append(authorization)
        if self.failures:
            return self.failures.pop(0), b'{"error_code": 50001, "message": "down"}'
        if self.page is not None:
            return 200, self.page
        if self.user is not None:
            expected = "Basic " + base64.b64encode(self.user.encode()).decode()
            if authorization != expected:
                return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        return self._found(path.strip("/").split("/"))

    def _found(self, parts: list[str]) -> tuple[int, bytes]:
        held: Any = None
        parts = [part.partition("?")[0] for part in parts]
        if parts == ["schemas", "types"]:
            held = ["AVRO", "JSON", "PROTOBUF"]
        elif parts[:2] == ["schemas", "ids"]:
            held = self.schemas.get(int(parts[2]))
        elif parts[0] == "subjects":
            held = self.subjects.get((parts[1], int(parts[3])))
        if held is None:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(held).encode()


@contextmanager
def running_registry(certificate: tuple[Path, Path] | None = None) -> Iterator[RegistryStub]:
    """Give a registry on a free loopback port, with TLS where a certificate and its key are given."""
    stub = RegistryStub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = stub.answer(self.path, self.headers.get("Authorization"))
            if status == 0:
                self.close_connection = True
                return
            self.send_response(302 if stub.redirect else status)
            if stub.redirect:
                self.send_header("Location", stub.redirect)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    stub.url = f"{'http' if certificate is None else 'https'}://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def wire(number: int, schema: Any, value: Any, named: Mapping[str, Any] | None = None) -> bytes:
    """A value in the Confluent wire format, written by fastavro."""
    stream = io.BytesIO()
    stream.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, dict(named or {})), value)
    return stream.getvalue()
