"""A table of routes over HTTP, from the standard library.

Nothing here changes state, each connection is one request, and clients that are slow, verbose or many
cost a bounded number of threads for a bounded time.
"""

from __future__ import annotations

import errno
import gzip
import socket
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from streamcal.errors import ServeError
from streamcal.serve.routes import Request, Response, Route

__all__ = ["HttpServer"]

_READ_S: Final = 10.0  # for the whole head of a request; as long as Prometheus waits for a whole scrape
_WRITE_S: Final = 30.0  # for the whole response; a full export of 14 MB needs 4 Mbit/s
_MAX_HEAD: Final = 16_384  # bytes of request line and headers, as much as common proxies pass on
_MAX_CONNECTIONS: Final = 32  # a scraper, a dashboard and a probe need three
_MIN_GZIP: Final = 1024  # bytes; what fits into one packet is not worth packing


class HttpServer:
    """Serves `table` on an address from a thread of its own, from entering to leaving its context.

    Guarantees that once constructed the address is bound (`port` is the real one), and once left it is free.

    Parameters
    ----------
    table : mapping of str to Route
    host : str
        Name or address; IPv6 too. Anything but loopback opens the figures to the network.
    port : int
        0 picks a free one.

    Raises
    ------
    ServeError
        The address cannot be bound.
    """

    def __init__(self, table: Mapping[str, Route], host: str = "127.0.0.1", port: int = 9871) -> None:
        self._server = _bound(table, host, port)
        self.host = host
        self.port: int = self._server.server_address[1]
        # Polls for the end every 50 ms: the longest that leaving has to wait.
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="http", daemon=True)

    @property
    def url(self) -> str:
        """Base address without a trailing slash."""
        return f"http://{_address(self.host, self.port)}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_HINTS: Final = {
    errno.EADDRINUSE: "another process listens there; stop it or set serve.port to a free port",
    errno.EACCES: "ports below 1024 need a privilege; set serve.port to a higher one",
    errno.EADDRNOTAVAIL: "this machine has no such address; set serve.host to one of its own, or 127.0.0.1",
}


def _bound(table: Mapping[str, Route], host: str, port: int) -> _Server:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _Server(table, found[0][0], found[0][4])
    except OSError as error:
        what = f"cannot listen: {error.strerror or error}"
        hint = _HINTS.get(error.errno or 0, "check serve.host and serve.port")
        raise ServeError(what, where=_address(host, port), hint=hint) from error


class _Server(ThreadingHTTPServer):
    """Holds a slot per connection, at most `_MAX_CONNECTIONS`; what comes beyond is closed at once."""

    daemon_threads = True
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, table: Mapping[str, Route], family: int, address: tuple[Any, ...]) -> None:
        self.address_family = family
        self.table = table
        self._slots = BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # The base class asks the resolver for the machine's full name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started, so none gives the slot back
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when a client went away; anything else is a fault of ours and is shown."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One request, then the connection is closed."""

    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "streamcal"
    sys_version = ""
    disable_nagle_algorithm = True  # head and body are two writes; together they would wait for an acknowledgement
    command = requestline = ""  # until the request line is read

    def setup(self) -> None:
        """Read the head as a whole, so that its size and the time for all of it are bounded, not each read."""
        super().setup()
        deadline, head = monotonic() + _READ_S, b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < _MAX_HEAD:
            self.connection.settimeout(max(0.001, deadline - monotonic()))
            more = self.connection.recv(_MAX_HEAD - len(head))
            if not more:
                break
            head += more
        self.connection.settimeout(_WRITE_S)
        self._head_size = len(head)
        self.rfile.close()
        self.rfile = BytesIO(head)

    def handle(self) -> None:
        """Answer one request."""
        if self._head_size >= _MAX_HEAD:
            self.request_version = self.protocol_version
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            self.handle_one_request()

    def do_GET(self) -> None:
        """Look the path up in the table."""
        try:
            target = urlsplit(self.path)
        except ValueError:  # such as an unclosed bracket in the host of an absolute address
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        route = self.server.table.get(target.path)
        if route is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        accepts_gzip = _accepts_gzip(self.headers.get("Accept-Encoding", ""))
        try:
            # Of a parameter given twice the last value counts.
            response = route(Request(dict(parse_qsl(target.query, keep_blank_values=True)), accepts_gzip))
        except Exception:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise  # a fault of ours: the server shows it
        self._send(response, accepts_gzip)

    do_HEAD = do_GET  # noqa: N815 - the base class finds methods by this name

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Plain text that repeats nothing of what the client sent (the base class puts that into `message`)."""
        # The base class answers methods without a handler with "not implemented".
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        paths = "".join(f"{path}\n" for path in self.server.table) if status == HTTPStatus.NOT_FOUND else ""
        self._send(Response(status, f"{status.value} {status.phrase}\n{paths}".encode()), accepts_gzip=False)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing per request: a scrape every few seconds says nothing new."""

    def _send(self, response: Response, accepts_gzip: bool) -> None:
        body, encoded = response.body, response.encoded
        if accepts_gzip and not encoded and len(body) >= _MIN_GZIP:
            body, encoded = gzip.compress(body, 1), True
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
        }
        if encoded:
            headers["Content-Encoding"] = "gzip"
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD"
        self.send_response(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _accepts_gzip(accept_encoding: str) -> bool:
    for offer in accept_encoding.lower().split(","):
        coding, _, weight = offer.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "").removeprefix("q=").strip("0.") != "" or not weight
    return False
