"""The files the status page loads, shipped with the package; the report has the same ones inlined."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib import resources
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from streamcal.serve.answers import accepts_gzip

__all__ = ["asset_response", "asset_text", "asset_url", "csp_hash"]

_TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_NAMES: Final = ("d3.min.js", "charts.js", "panels.js", "status.js", "streamcal.css", "icon.svg")
_A_YEAR: Final = "public, max-age=31536000, immutable"


@cache
def asset_text(name: str) -> str:
    """Content of the file `name` in the folder of assets."""
    return resources.files("streamcal.serve").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def asset_url(name: str) -> str:
    """Where the page loads `name` from: changes with its content, so that browsers may keep it."""
    digest = hashlib.sha256(asset_text(name).encode()).hexdigest()[:12]
    return f"assets/{name}?v={digest}"


def csp_hash(text: str) -> str:
    """Source expression of a content security policy that lets exactly `text` run or apply."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(asset_text(name).encode(), 9, mtime=0)


def asset_response(request: Request) -> Response:
    """The file asked for.

    Raises
    ------
    HTTPException
        404 for anything but the files of the page.
    """
    name = request.path_params["name"]
    if name not in _NAMES:
        raise HTTPException(404)
    headers = {
        "Content-Type": _TYPES[name[name.rindex(".") :]],
        "Cache-Control": _A_YEAR if request.query_params.get("v") else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(_packed(name), headers=headers | {"Content-Encoding": "gzip"})
    return Response(asset_text(name).encode(), headers=headers)
