"""A client of a Confluent-style schema registry over HTTP: schemas by id, asked for once each.

Theory of operation. A schema never changes under its id, so an answer is kept for the life of the process and the
registry is asked only when a new id turns up. An id it does not know (404) is kept as unknown for a minute: registries
that replicate may hear of it late. Time-outs, refused connections, 429 and 5xx are tried again with growing pauses for
`patience_s`, in the reading thread: nothing is decoded, folded in or committed meanwhile, so nothing is lost, and a
registry that stays away ends the process with an error and the group's offsets where they were. Other answers
(401, 403, a page that is no JSON) do not get better by waiting and are errors at once.

Redirects are not followed: the credentials are for this address.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
import structlog

from streamcal.errors import BrokerError

__all__ = ["Registered", "RegistryError", "SchemaRegistry"]

_TIMEOUT_S: Final = 5.0
"""For one request: a registry answers from memory, in milliseconds."""
_PATIENCE_S: Final = 60.0
"""Longest time without an answer: a restart of a registry, and well below the five minutes a poll may take."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_UNKNOWN_S: Final = 60.0
_MOST_UNKNOWN: Final = 10_000
"""Ids remembered as unknown: values that are no wire format at all may begin with any four bytes."""
_LARGEST: Final = 4 * 2**20
"""Bytes of an answer; the largest schemas in use are a tenth of it."""
_COMPILED: Final = "?format=serialized"
"""Has a Protobuf schema answered as a descriptor, base64, and not as source text."""
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"

log = structlog.get_logger(__name__)
_Answer = TypeVar("_Answer")


class RegistryError(BrokerError):
    """The schema registry cannot be reached, refuses, or answers with something else."""


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's name
    references: list[_Reference] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Registered:
    """One schema as registered.

    Attributes
    ----------
    kind : str
        ``AVRO``, ``JSON`` or ``PROTOBUF``.
    text : str
        Of Protobuf: its file descriptor, serialized, in base64.
    references : mapping
        Name to the text of each schema it builds on, those they build on first.
    """

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect as the answer it is."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class SchemaRegistry:
    """Finds schemas by their id; used from one thread.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``, with a path where the registry has one.
    credentials : str or None
        ``user:password``.
    ca_file : str or None
        PEM file of trusted authorities; None: those of the system.
    patience_s : float
        How long to go on trying where that can help.

    Raises
    ------
    RegistryError
        The file of authorities cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: str | None = None,
        ca_file: str | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._headers = {"Accept": _ACCEPT, "User-Agent": "streamcal"}
        if credentials is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
        self._opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=self._context(ca_file))
        )
        self._known: dict[int, Registered] = {}
        self._unknown: dict[int, float] = {}

    def check(self) -> None:
        """See that a registry answers, without waiting for one.

        Raises
        ------
        RegistryError
            None answers, or it refuses these credentials.
        """
        # Old registries know no types and answer 404, which is an answer.
        self._once("/schemas/types", Any)

    def schema(self, number: int) -> Registered | None:
        """The schema of this id; None if the registry does not know it.

        Raises
        ------
        RegistryError
            It does not answer for `patience_s`, or refuses.
        """
        found = self._known.get(number)
        if found is not None:
            return found
        if self._unknown.get(number, 0.0) > time.monotonic():
            return None
        path = f"/schemas/ids/{number}"
        answer = self._patiently(path, _Schema)
        if answer is not None and answer.schemaType == "PROTOBUF":
            answer = self._patiently(path + _COMPILED, _Schema)
        if answer is None:
            log.warning("schema id unknown to the registry", schema_id=number, registry=self.url)
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[number] = time.monotonic() + _UNKNOWN_S
            return None
        references: dict[str, str] = {}
        self._resolve(answer.references, references, _COMPILED if answer.schemaType == "PROTOBUF" else "")
        found = self._known[number] = Registered(answer.schemaType, answer.schema, references)
        return found

    def _resolve(
        self, wanted: list[_Reference], found: dict[str, str], form: str, seen: frozenset[str] = frozenset()
    ) -> None:
        """Collect referenced schemas, those that others build on first."""
        for one in wanted:
            if one.name in found or one.name in seen:
                continue
            subject = urllib.parse.quote(one.subject, safe="")
            answer = self._patiently(f"/subjects/{subject}/versions/{one.version}{form}", _Schema)
            if answer is None:
                what = f"a schema refers to version {one.version} of subject {one.subject!r}, which is not there"
                raise RegistryError(what, where=self.url, hint="register it again; references must not be deleted")
            self._resolve(answer.references, found, form, seen | {one.name})
            found[one.name] = answer.schema

    def _patiently(self, path: str, kind: type[_Answer]) -> _Answer | None:
        """Ask until there is an answer or patience ends."""
        deadline, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return self._once(path, kind)
            except RegistryError as error:
                if not error.retryable or time.monotonic() + pause > deadline:
                    raise
                log.warning("schema registry does not answer; trying again", error=error.what, registry=self.url)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _once(self, path: str, kind: type[_Answer] | Any) -> _Answer | None:
        """One request; None for what is not there.

        Raises
        ------
        RegistryError
            No answer, or not one of a registry; `retryable` says whether trying again can help.
        """
        request = urllib.request.Request(self.url + path, headers=self._headers)  # noqa: S310 - the configuration admits http(s) only
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                body: bytes = response.read(_LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                self._refuse(error.code)
            return None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            hint = "check events.schema_registry.url, ca_file and the network"
            raise self._error(f"the schema registry does not answer: {reason}", hint, retryable=True) from error
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            hint = "check that events.schema_registry.url is the address of a schema registry, its path included"
            raise self._error(f"the answer to {path} is not that of a registry: {error}", hint) from error

    def _refuse(self, status: int) -> None:
        if status == http.HTTPStatus.NOT_FOUND:
            return
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            hint = "check events.schema_registry.basic_auth_file (user:password) and the rights of that user"
            raise self._error(f"the schema registry refuses these credentials (HTTP {status})", hint)
        passing = status == http.HTTPStatus.TOO_MANY_REQUESTS or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR
        hint = "check events.schema_registry.url, and the registry's own log"
        raise self._error(f"the schema registry answers with HTTP {status}", hint, retryable=passing)

    def _error(self, what: str, hint: str, *, retryable: bool = False) -> RegistryError:
        error = RegistryError(what, where=self.url, hint=hint)
        error.retryable = retryable
        return error

    def _context(self, ca_file: str | None) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=ca_file)
        except OSError as error:  # ssl.SSLError among them
            what = f"the certificates in {ca_file} cannot be used: {error.strerror or error}"
            raise RegistryError(what, where=self.url, hint="check events.schema_registry.ca_file (PEM)") from error
