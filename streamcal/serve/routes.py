"""What is served under which path: metrics, health, and counts for audit.

One table of functions from a `Request` to a `Response`; whatever carries the bytes can take it over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from streamcal.serve.exporter import Exporter
from streamcal.serve.live import Readiness

__all__ = ["Request", "Response", "Route", "routes"]

_PLAIN: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """What a route may look at: query parameters (the last value of each) and whether gzip is accepted."""

    query: Mapping[str, str]
    gzip: bool


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body and its content type; `encoded` where the body is gzip already."""

    status: HTTPStatus
    body: bytes
    content_type: str = _PLAIN
    encoded: bool = False


Route = Callable[[Request], Response]


def routes(
    exporter: Exporter, readiness: Readiness, counts: Callable[[], Mapping[str, Any]] | None = None
) -> Mapping[str, Route]:
    """Path to what answers it.

    Parameters
    ----------
    exporter : Exporter
    readiness : Readiness
    counts : callable or None
        Integer counts of the window totals per model name, for audit; called in a serving thread, so it
        must read immutable state only. NumPy arrays and scalars in it are written as plain JSON.
    """

    def metrics(request: Request) -> Response:
        body = exporter.compressed() if request.gzip else exporter.text()
        return Response(HTTPStatus.OK, body, CONTENT_TYPE_PLAIN_0_0_4, request.gzip)

    def healthz(_: Request) -> Response:
        return Response(HTTPStatus.OK, b"ok\n")

    def readyz(_: Request) -> Response:
        reason = readiness.reason
        if reason is None:
            return Response(HTTPStatus.OK, b"ready\n")
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n".encode())

    def audit(request: Request) -> Response:
        return _counts(counts() if counts is not None else {}, request.query.get("model"))

    return {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz, "/api/v1/counts": audit}


def _counts(by_model: Mapping[str, Any], model: str | None) -> Response:
    if model is not None and model not in by_model:
        return _json(HTTPStatus.NOT_FOUND, {"error": "no such model", "models": sorted(by_model)})
    return _json(HTTPStatus.OK, by_model if model is None else {model: by_model[model]})


def _json(status: HTTPStatus, content: Mapping[str, Any]) -> Response:
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), default=lambda numpy: numpy.tolist())
    return Response(status, text.encode() + b"\n", _JSON)
