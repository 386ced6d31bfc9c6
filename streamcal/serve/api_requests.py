"""``/api/v1/requests``: what an operator may ask of the maps, with the admin token.

The token is carried in a header that no browser adds by itself, so a page of somebody else cannot ask in an
operator's name.
"""

from __future__ import annotations

import hmac
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Path
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from streamcal.serve import api_models as models
from streamcal.serve import api_tables as tables
from streamcal.serve.exposition import label_value
from streamcal.serve.requests import Asked, Requests, TooManyRequestsError, Tracked
from streamcal.serve.sources import Access, Sources
from streamcal.serve.view import find_model

__all__ = ["requests_router"]

REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"model": models.Problem, "description": "The token is missing or wrong."},
    403: {"model": models.Problem, "description": "The service is read-only: no admin token is configured."},
    404: {"model": models.Problem, "description": "No such model or request."},
    409: {"model": models.Problem, "description": "Another process of the group aggregates: it takes requests."},
    429: {"model": models.Problem, "description": "Too many requests are waiting."},
    501: {"model": models.Problem, "description": "Nothing in this process takes requests."},
    503: {"model": models.Problem, "description": "Not ready: it starts, recovers or stops."},
}

_bearer = HTTPBearer(auto_error=False, description="Content of serve.admin_token_file.")


def requests_router(sources: Sources, access: Access) -> APIRouter:
    """The routes that change something, and what came of it."""

    def operator(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Requests:
        if access.admin_token is None:
            raise HTTPException(403, "read-only: set serve.admin_token_file to allow requests")
        token = "" if given is None else given.credentials
        # Compared as bytes: text beyond ASCII is refused by the comparison instead of being unequal.
        if not hmac.compare_digest(token.encode(), access.admin_token.encode()):
            raise HTTPException(
                401, "send the admin token as Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"}
            )
        if sources.requests is None:
            raise HTTPException(501, "this process takes no requests; ask the daemon (`streamcal run`)")
        return sources.requests

    taker: Any = Depends(operator)  # as a default: an annotation could not name a local function
    router = APIRouter(prefix="/api/v1", tags=["admin"], responses=REFUSALS)

    @router.post(
        "/requests",
        response_model=tables.RequestAnswer,
        status_code=202,
        summary="Ask for a refit, or to promote, roll back to, pin or unpin a map",
    )
    async def submit(asked: tables.AskedRequest, requests: Requests = taker) -> dict[str, Any]:
        named = Asked(**asked.model_dump(exclude={"model"}), model=_model(sources, asked.model))
        try:
            return _answer(requests.submit(named))
        except TooManyRequestsError as error:
            raise HTTPException(429, "too many requests are waiting for the loop; ask again later") from error

    @router.get("/requests/{number}", response_model=tables.RequestAnswer, summary="What came of a request")
    async def find(number: Annotated[int, Path(ge=1, le=2**53)], requests: Requests = taker) -> dict[str, Any]:
        request = requests.find(number)
        if request is None:
            raise HTTPException(404, "no such request, or it was long ago")
        return _answer(request)

    return router


def _model(sources: Sources, shown: str) -> str:
    """The name of the model that is shown so."""
    snapshot = sources.holder.latest
    if snapshot is None:
        raise _nothing_here(sources.readiness.reason)
    found = find_model(snapshot, shown)
    if found is None:
        raise HTTPException(404, "no model of that name has predicted; /api/v1/status lists them")
    return found.name


def _nothing_here(not_ready: str | None) -> HTTPException:
    if not_ready is not None:
        return HTTPException(503, f"not ready: {not_ready}; ask again", headers={"Retry-After": "1"})
    return HTTPException(409, "this process does not aggregate; ask the process of the group that does")


def _answer(request: Tracked) -> dict[str, Any]:
    asked = asdict(request.asked) | {"model": label_value(request.asked.model)}
    return {"number": request.number, "state": request.state, "detail": request.detail} | asked
