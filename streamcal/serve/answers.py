"""JSON answers, rendered at most once per snapshot and question, and not sent again to who has them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from streamcal.serve.packing import packed

__all__ = ["Answers", "json_response"]

_MOST_ANSWERS: Final = 64  # the largest, 500 segments, have 200 kB
_MIN_GZIP: Final = 1024  # bytes; what fits into one packet is not worth packing

_T = TypeVar("_T")

_encode = msgspec.json.Encoder(enc_hook=lambda numpy: numpy.tolist()).encode


class Answers:
    """Answers of the newest snapshot by question; used by the one thread of the event loop only."""

    def __init__(self) -> None:
        self._sequence: int | None = None
        self._held: dict[Hashable, Any] = {}

    def once(self, sequence: int, question: Hashable, make: Callable[[], _T]) -> _T:
        """What `make` returned for this question about this snapshot the first time."""
        if sequence != self._sequence or len(self._held) >= _MOST_ANSWERS:
            self._sequence, self._held = sequence, {}
        if question not in self._held:
            self._held[question] = make()
        found: _T = self._held[question]
        return found

    def get(
        self, request: Request, sequence: int, question: Hashable, make: Callable[[], Mapping[str, Any]]
    ) -> Response:
        """The answer to `question` about the snapshot of that number; 304 where the asker has it already."""
        body, small, tag = self.once(sequence, question, lambda: _packed(make()))
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if tag in {given.strip() for given in request.headers.get("if-none-match", "").split(",")}:
            return Response(status_code=304, headers=headers)
        if small is not None and accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(small, headers=headers | {"Content-Encoding": "gzip"}, media_type="application/json")
        return Response(body, headers=headers, media_type="application/json")


def _packed(document: Mapping[str, Any]) -> tuple[bytes, bytes | None, str]:
    """Body, the same packed where that is worth it, and its tag."""
    body = _encode(document) + b"\n"
    small = packed(body) if len(body) >= _MIN_GZIP else None
    return body, small, f'W/"{len(body):x}-{zlib.crc32(body):08x}"'


def json_response(document: Mapping[str, Any], status: int = 200) -> Response:
    """`document` as JSON; NumPy arrays and scalars in it are written as plain numbers."""
    return Response(_encode(document) + b"\n", status, media_type="application/json")


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a header of that content takes gzip.

    >>> accepts_gzip("deflate, GZIP;q=0.5"), accepts_gzip("gzip;q=0")
    (True, False)
    """
    for offer in accept_encoding.lower().split(","):
        coding, _, weight = offer.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "").removeprefix("q=").strip("0.") != "" or not weight
    return False
