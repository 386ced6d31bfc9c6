"""Asking the daemon over HTTP: where it is, with which token, and what an answer that is none means.

No redirect is followed and no proxy asked: the token goes to the address that was named, or nowhere.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import typer

from streamcal.errors import DaemonError, StreamcalError

if TYPE_CHECKING:
    from streamcal.runtime.config_sections import Serve

__all__ = ["CaFileOption", "Daemon", "TokenFileOption", "UrlOption", "daemon_of", "token_of"]

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the daemon serves. Default: from `serve` of the configuration."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with the admin token. Default: serve.admin_token_file."),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option("--ca-file", metavar="FILE", help="Certificates to trust (PEM), beside the system's and our own."),
]

_ANSWER_S: Final = 30.0
"""Counts may wait 15 s for the loop."""
_LARGEST: Final = 256 * 1024 * 1024
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listened on, not asked
_HINTS: Final = {
    401: "the token is not that of the daemon: --token-file, or serve.admin_token_file of this configuration",
    403: "set serve.admin_token_file in the daemon's configuration and start it again",
    421: "name the daemon by an address, or add the name to its serve.allowed_hosts",
    429: "wait until what was asked before is answered",
    501: "name the daemon of `streamcal run` with --url",
    503: "ask again in a moment",
}


class Daemon:
    """One daemon.

    Parameters
    ----------
    url : str
        ``http://host:port``, ``https://`` too; may have a path before ``/api``.
    token : str or None
        Sent only by `post` and `request_state`.
    trusted : sequence of Path
        Files of certificates, beside those of the system.

    Raises
    ------
    DaemonError
        From every question: nobody answers, or not as a daemon does.
    StreamcalError
        From every question: what was asked is refused; the reason in words.
    """

    def __init__(self, url: str, token: str | None = None, trusted: tuple[Path, ...] = ()) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise typer.BadParameter(f"{url!r} is not like http://host:9871", param_hint="--url")
        self.url = url.rstrip("/")
        self._parts = parts
        self._token = token
        self._trusted = trusted

    @property
    def bares_token(self) -> bool:
        """Whether a token would cross a network unencrypted."""
        return self._parts.scheme == "http" and not _is_loopback(self._parts.hostname or "")

    def get(self, path: str, **query: str) -> Any:
        """Read something under ``/api/v1``."""
        return self._asked("GET", path + (f"?{urlencode(query)}" if query else ""), None)

    def request_state(self, number: int) -> Any:
        """What came of a request."""
        return self._asked("GET", f"/requests/{number}", None, token=True)

    def submit(self, asked: Mapping[str, Any]) -> Any:
        """Hand a request over."""
        return self._asked("POST", "/requests", json.dumps(asked).encode(), token=True)

    def _asked(self, method: str, path: str, body: bytes | None, *, token: bool = False) -> Any:
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
        if token and self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        status, data = self._exchange(method, f"{self._parts.path.rstrip('/')}/api/v1{path}", body, headers)
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            hint = "check the address: a proxy, or another service, is there"
            raise DaemonError(f"answers {status}, and not as streamcal does", where=self.url, hint=hint)
        if status >= 400:
            raise refusal(status, answer.get("detail"), self.url)
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read(_LARGEST)
        except ssl.SSLCertVerificationError as error:
            hint = "name the host as its certificate does, and trust it with --ca-file"
            raise DaemonError(
                f"its certificate is not trusted: {error.verify_message}", where=self.url, hint=hint
            ) from (error)
        except (OSError, http.client.HTTPException) as error:
            hint = "check that `streamcal run` is up there, and the address (serve.host, serve.port, or --url)"
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DaemonError(f"no daemon answers: {reason}", where=self.url, hint=hint) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
        context = ssl.create_default_context()
        for path in self._trusted:
            try:
                context.load_verify_locations(path)
            except OSError as error:
                raise StreamcalError(f"holds no certificates: {error}", where=str(path)) from error
        return http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=context)


class ElsewhereError(StreamcalError):
    """The process that was asked does not aggregate."""


def refusal(status: int, detail: Any, where: str) -> StreamcalError:
    """What an answer that refuses means for whoever asked."""
    if isinstance(detail, list):  # what is wrong with the fields of a request
        what = "; ".join(f"{'.'.join(map(str, one.get('loc', [])[1:]))}: {one.get('msg')}" for one in detail)
        return StreamcalError(f"the request is not taken: {what}", where=where)
    what = str(detail)
    if status == 409:
        return ElsewhereError(what, where=where, hint="name that process with --url")
    kind = DaemonError if status >= 500 else StreamcalError
    return kind(what, where=where, hint=_HINTS.get(status, ""))


def daemon_of(serve: Serve, url: str | None, ca_file: Path | None, token: str | None = None) -> Daemon:
    """The daemon that was named, or the one of the configuration.

    Raises
    ------
    StreamcalError
        The configuration leaves the port open.
    """
    trusted = tuple(path for path in (ca_file, serve.tls_cert_file) if path is not None and path.is_file())
    if ca_file is not None and ca_file not in trusted:
        raise StreamcalError("there is no such file", where=str(ca_file), hint="check --ca-file")
    if url is None:
        if serve.port == 0:
            hint = "it takes a free one: see the daemon's log line `serving`, and give --url"
            raise StreamcalError("the configuration names no port", where="serve.port", hint=hint)
        host = _EVERYWHERE.get(serve.host, serve.host)
        scheme = "http" if serve.tls_cert_file is None else "https"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{serve.port}"
    return Daemon(url, token, trusted)


def token_of(serve: Serve, token_file: Path | None) -> str:
    """The admin token, as the daemon reads it.

    Raises
    ------
    StreamcalError
        No file is named, or it cannot be read.
    """
    path = token_file or serve.admin_token_file
    if path is None:
        hint = "set serve.admin_token_file in the configuration of the daemon and here, or give --token-file"
        raise StreamcalError("requests need the admin token", hint=hint)
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        hint = "it must be readable for whoever asks, and hold the token alone"
        raise StreamcalError(f"the token cannot be read: {reason}", where=str(path), hint=hint) from error
    if not token or any(character.isspace() for character in token):
        raise StreamcalError("holds no token: one word is asked for", where=str(path))
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
