"""What every request passes before anything is looked up: the name it asked for, its size, its time; and what every
answer carries.

A page of somebody else can make a browser ask this service under a name that it resolves to our address (DNS
rebinding), and then read the answer. So a request must name us by an address, as ``localhost``, by the configured
host, or by one of ``serve.allowed_hosts``. Metrics and probes are exempt: what asks for them is no browser, and has
its own idea of our name.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Final

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["EXEMPT", "Guard"]

EXEMPT: Final = frozenset(("/metrics", "/healthz", "/readyz"))
_MAX_BODY: Final = 16_384  # bytes; the largest request there is has five short fields
_TOO_LARGE: Final = "the body of a request may have 16 KiB"
_HANDLE_S: Final = 30.0  # for everything up to handing over the answer; counts may wait 15 s for the loop

_HEADERS: Final = {
    # Scripts and styles only from our own files, nothing from elsewhere, no frames around us.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Wraps an application.

    Parameters
    ----------
    app : ASGI application
    hosts : sequence of str
        Names, beside addresses and ``localhost``, under which the service may be asked.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(_plain(host) for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, guarded_send)
            return
        try:
            async with asyncio.timeout(_HANDLE_S):
                await self._app(scope, _limited(receive), guarded_send)
        except _TooLargeError:
            await _answer(413, _TOO_LARGE)(scope, receive, guarded_send)
        except TimeoutError:
            if not started:
                await _answer(503, "this took too long; ask again")(scope, receive, guarded_send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if scope["path"] not in EXEMPT and not self._known(headers.getlist("host")):
            return _answer(421, "this service is not asked under that name; add the name to serve.allowed_hosts")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > _MAX_BODY:
            return _answer(413, _TOO_LARGE)
        return None

    def _known(self, given: Sequence[str]) -> bool:
        if len(given) != 1:
            return False
        host = _plain(_without_port(given[0]))
        return host == "localhost" or host in self._hosts or _is_address(host)


class _TooLargeError(HTTPException):
    """More of a body than allowed: an answer by itself where a framework catches it."""

    def __init__(self) -> None:
        super().__init__(413, _TOO_LARGE, headers={"Connection": "close"})


def _limited(receive: Receive) -> Receive:
    read = 0

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > _MAX_BODY:
            raise _TooLargeError
        return message

    return limited


def _answer(status: int, detail: str) -> JSONResponse:
    # The rest of a body that is not read would be taken for the next request.
    return JSONResponse({"detail": detail}, status, headers={"Connection": "close"})


def _plain(host: str) -> str:
    return host.strip().lower().removesuffix(".")


def _without_port(host: str) -> str:
    """The name or address of a Host header; an IPv6 address loses its brackets.

    >>> _without_port("localhost:9871"), _without_port("[::1]:9871"), _without_port("streamcal")
    ('localhost', '::1', 'streamcal')
    """
    if host.startswith("["):
        address, _, port = host[1:].partition("]")
        return address if not port or (port[0] == ":" and port[1:].isdigit()) else host
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
