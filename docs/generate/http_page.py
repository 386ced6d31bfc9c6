"""The page of the HTTP interface, from the daemon's own OpenAPI description."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
from tables import escaped, joined, table

from streamcal.runtime.config import Config
from streamcal.runtime.serving import http_application
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder

__all__ = ["http_page"]


def http_page() -> str:
    """Markdown of all paths."""
    description = _description()
    return "\n".join(
        [
            "# HTTP\n",
            "What the daemon serves, by default on `127.0.0.1:9871`; described by `/api/v1/openapi.json`.\n",
            table(("method", "path", "parameters", "answer"), _rows(description)),
        ]
    )


def _description() -> dict[str, Any]:
    app = http_application(Config(), SnapshotHolder(), Readiness(), CommitRecorder())

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await client.get("/api/v1/openapi.json")

    described: dict[str, Any] = asyncio.run(ask()).raise_for_status().json()
    return described


def _rows(description: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parameters = ", ".join(f"`{parameter['name']}`" for parameter in operation.get("parameters", []))
            says = operation.get("summary") or ""
            if operation.get("description"):
                says = operation["description"].split("\n\n")[0]
            yield method.upper(), f"`{path}`", parameters, escaped(joined(says))
