"""The application behind the port: metrics and probes, the status page, the API."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from streamcal.serve.answers import accepts_gzip
from streamcal.serve.api import api_router
from streamcal.serve.api_requests import requests_router
from streamcal.serve.assets import asset_response
from streamcal.serve.guard import Guard
from streamcal.serve.sources import Access, Sources
from streamcal.serve.status_page import status_page

__all__ = ["application", "create_app"]

_PATHS = ("/", "/metrics", "/healthz", "/readyz", "/api/v1/status", "/api/v1/openapi.json")


def application(sources: Sources, access: Access | None = None) -> ASGIApp:
    """Everything served on the port, behind the guard."""
    access = access or Access()
    return Guard(create_app(sources, access), access.allowed_hosts)


def create_app(sources: Sources, access: Access) -> FastAPI:
    """The routes without the guard."""
    app = FastAPI(
        title="streamcal",
        version=sources.version,
        summary="Calibration of model scores, as it is now.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(api_router(sources, access))
    app.include_router(requests_router(sources, access))
    for path, endpoint in (
        ("/metrics", _metrics(sources)),
        ("/healthz", _healthz),
        ("/readyz", _readyz(sources)),
        ("/", _page(sources)),
        ("/assets/{name}", _asset),
    ):
        app.add_route(path, endpoint, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(404, _not_found)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


def _metrics(sources: Sources) -> Any:
    async def metrics(request: Request) -> Response:
        packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        render = sources.exporter.compressed if packed else sources.exporter.text
        # In a thread of its own: a large export takes long enough to keep a probe waiting.
        body = await run_in_threadpool(render)
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        return Response(body, headers=headers | ({"Content-Encoding": "gzip"} if packed else {}))

    return metrics


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _readyz(sources: Sources) -> Any:
    async def readyz(_: Request) -> Response:
        reason = sources.readiness.reason
        return PlainTextResponse("ready\n") if reason is None else PlainTextResponse(f"not ready: {reason}\n", 503)

    return readyz


def _page(sources: Sources) -> Any:
    async def page(_: Request) -> Response:
        return HTMLResponse(status_page(sources.version))

    return page


async def _asset(request: Request) -> Response:
    return asset_response(request)


async def _invalid(_: Request, error: Exception) -> Response:
    # Says where and why; what was sent is not repeated, it may hold text that no answer can.
    assert isinstance(error, RequestValidationError)
    found = [
        {"type": one["type"], "loc": [_plain(at) for at in one["loc"]], "msg": one["msg"]} for one in error.errors()
    ]
    return JSONResponse({"detail": found}, 422)


def _plain(place: Any) -> Any:
    return place.encode("utf-8", "replace").decode() if isinstance(place, str) else place


async def _not_found(_: Request, error: Exception) -> Response:
    # Says nothing of what was asked for.
    detail = error.detail if isinstance(error, HTTPException) and error.detail != "Not Found" else None
    known = {} if detail else {"paths": list(_PATHS)}
    return JSONResponse({"detail": detail or "no such path"} | known, 404)
