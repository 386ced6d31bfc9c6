"""An ASGI application over HTTP: uvicorn in a thread of the daemon, with limits of size, time and number.

What uvicorn leaves unbounded is bounded here: how long the head of a request may take, how long a client may take to
read an answer, and how many connections there are. Nothing is logged per request; a fault of ours is.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamcal.errors import ServeError

__all__ = ["HttpServer", "Tls"]

_READ_S: Final = 10.0  # for the whole head of a request; as long as Prometheus waits for a whole scrape
_WRITE_S: Final = 30.0  # for the whole response; a full export of 14 MB needs 4 Mbit/s
_IDLE_S: Final = 75  # between requests of a connection: longer than the usual 60 s between two scrapes
_MAX_HEAD: Final = 16_384  # bytes of request line and headers, as much as common proxies pass on
_MAX_CONNECTIONS: Final = 64  # a scraper, a probe, and a browser's six for each of ten people


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate (with its chain) and key to serve HTTPS with, both PEM."""

    cert_file: Path
    key_file: Path


class HttpServer:
    """Serves `app` on an address from a thread of its own, from entering to leaving its context.

    Guarantees that once constructed the address is bound (`port` is the real one), and once left it is free.

    Parameters
    ----------
    app : ASGI application
    host : str
        Name or address; IPv6 too. Anything but loopback opens the figures to the network.
    port : int
        0 picks a free one.
    tls : Tls or None
        None: plain HTTP.

    Raises
    ------
    ServeError
        The address cannot be bound, or the certificate cannot be used.
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", port: int = 9871, *, tls: Tls | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=_BoundedProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_MAX_HEAD,
            backlog=_MAX_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=1,
        )
        if tls is not None:
            _use(config, tls)
        self._socket = _bound(host, port)
        self._server = uvicorn.Server(config)
        self._scheme = "http" if tls is None else "https"
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._thread = Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True)

    @property
    def url(self) -> str:
        """Base address without a trailing slash."""
        return f"{self._scheme}://{_address(self.host, self.port)}"

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.001)
        if not self._server.started:
            raise ServeError("the HTTP server did not start", where=_address(self.host, self.port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class _BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose clients can be slow only for so long, and only so many.

    Invariant: a timer runs while a request's head is begun and not whole (from the start of a connection on), and
    another while an answer is not yet handed to the network.
    """

    _head: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        super().connection_made(transport)
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.abort()
            return
        self._head = self.loop.call_later(_READ_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head()
        self._stop_answer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head()
        elif self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(_READ_S, self.transport.abort)

    def on_response_complete(self) -> None:
        self._stop_answer()
        self._answer = self.loop.call_later(_WRITE_S, self._give_up_if_unread)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        # The base class says 400 to a head that is too large as well, and asserts that nothing was answered before.
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _give_up_if_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_answer(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None


def _use(config: uvicorn.Config, tls: Tls) -> None:
    """Let `config` serve HTTPS; says which file is at fault, and never what is in it."""
    where = f"{tls.cert_file}, {tls.key_file}"
    hint = "serve.tls_cert_file and serve.tls_key_file must be a PEM certificate and its key, without a password"
    try:
        # A password would be asked for on the terminal of a daemon; an empty one makes such a key an error.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not usable"
        raise ServeError(f"cannot serve HTTPS: {reason}", where=where, hint=hint) from error
    except OSError as error:
        raise ServeError(f"cannot serve HTTPS: {error.strerror}", where=where, hint=hint) from error
    config.load()
    config.ssl = context


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_HINTS: Final = {
    errno.EADDRINUSE: "another process listens there; stop it or set serve.port to a free port",
    errno.EACCES: "ports below 1024 need a privilege; set serve.port to a higher one",
    errno.EADDRNOTAVAIL: "this machine has no such address; set serve.host to one of its own, or 127.0.0.1",
}


def _bound(host: str, port: int) -> socket.socket:
    try:
        found: list[tuple[Any, ...]] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listener = socket.socket(found[0][0], socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(found[0][4])
            listener.listen(_MAX_CONNECTIONS)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        what = f"cannot listen: {error.strerror or error}"
        hint = _HINTS.get(error.errno or 0, "check serve.host and serve.port")
        raise ServeError(what, where=_address(host, port), hint=hint) from error
    return listener
