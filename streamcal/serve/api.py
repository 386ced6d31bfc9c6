"""``/api/v1``: what is known, as JSON.

Models are named by a query parameter, not by a part of the path, since names may hold slashes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from streamcal.serve import api_models as models
from streamcal.serve import api_tables as tables
from streamcal.serve.answers import Answers, json_response
from streamcal.serve.sources import Access, Sources
from streamcal.serve.view import find_model, find_window, history_view, model_view, status_view, summaries_view
from streamcal.serve.view_maps import maps_view
from streamcal.serve.view_segments import segments_view
from streamcal.snapshot import ModelSnapshot, Snapshot

__all__ = ["api_router"]

NOT_FOUND: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": models.Problem, "description": "No such model or window, or nothing is known yet."}
}
BUSY: Final[dict[int | str, dict[str, Any]]] = {
    503: {"model": models.Problem, "description": "The loop is held up and did not answer in time."}
}

Model = Annotated[str, Query(min_length=1, max_length=1000, description="Name of the model.")]
Window = Annotated[
    str | None, Query(max_length=100, description="Name of the window; the first of the model where left out.")
]


def api_router(sources: Sources, access: Access) -> APIRouter:
    """The routes that only read."""
    router = APIRouter(prefix="/api/v1", tags=["read"])
    answers = Answers()

    @router.get("/status", response_model=models.StatusAnswer, summary="The daemon at a glance")
    async def status() -> Response:
        reason = sources.readiness.reason
        snapshot = sources.holder.latest
        document = status_view(snapshot, now_ms=time.time_ns() // 1_000_000)
        lines = [] if snapshot is None else answers.once(snapshot.sequence, "models", lambda: summaries_view(snapshot))
        document |= {
            "models": lines,
            "version": sources.version,
            "ready": reason is None,
            "not_ready_reason": reason,
            "read_only": access.admin_token is None,
            "snapshot_age_s": sources.holder.age_s(),
        }
        return json_response(document)

    @router.get("/model", response_model=models.ModelAnswer, responses=NOT_FOUND, summary="One model")
    async def model(request: Request, model: Model) -> Response:
        snapshot, found = _found(sources, model)
        return answers.get(request, snapshot.sequence, ("model", model), lambda: model_view(snapshot, found))

    @router.get(
        "/segments", response_model=tables.SegmentsAnswer, responses=NOT_FOUND, summary="Segments, the worst first"
    )
    async def segments(request: Request, asked: Annotated[tables.AskedSegments, Query()]) -> Response:
        snapshot, found = _found(sources, asked.model)
        held = find_window(found, asked.window)
        if held is None:
            raise _no_window(found)
        head = {"sequence": snapshot.sequence, "model": asked.model, "window": held.window}
        head |= {"score_kind": asked.score_kind, "offset": asked.offset}
        question = ("segments", *asked.model_dump().values())
        return answers.get(request, snapshot.sequence, question, lambda: head | segments_view(found, held, asked))

    @router.get("/history", response_model=tables.HistoryAnswer, responses=NOT_FOUND, summary="Figures over time")
    async def history(request: Request, model: Model, window: Window = None) -> Response:
        snapshot, found = _found(sources, model)
        name = window or next(iter(sources.holder.trace.windows(found.name)), "")
        track = sources.holder.trace.track(found.name, name)
        if track is None:
            raise _no_window(found)
        return answers.get(
            request,
            snapshot.sequence,
            ("history", model, name),
            lambda: history_view(snapshot.sequence, model, name, track),
        )

    @router.get("/maps", response_model=tables.MapsAnswer, responses=NOT_FOUND, summary="The map history")
    async def maps(request: Request, model: Model) -> Response:
        snapshot, found = _found(sources, model)
        return answers.get(request, snapshot.sequence, ("maps", model), lambda: maps_view(snapshot, found))

    @router.get(
        "/counts",
        response_model=dict[str, Any],
        responses=NOT_FOUND | BUSY,
        summary="Integer counts of every bin, for audit",
    )
    async def counts(
        model: Annotated[str | None, Query(max_length=1000)] = None,
        segment: Annotated[str | None, Query(max_length=1000, description="Only this segment, such as all.")] = None,
    ) -> Response:
        return await run_in_threadpool(_counts, sources.counts, model, segment)

    return router


def _found(sources: Sources, name: str) -> tuple[Snapshot, ModelSnapshot]:
    snapshot = sources.holder.latest
    if snapshot is None:
        raise HTTPException(404, "nothing is known yet: the first snapshot is still to come")
    model = find_model(snapshot, name)
    if model is None:
        raise HTTPException(404, "no model of that name has predicted; /api/v1/status lists them")
    return snapshot, model


def _no_window(model: ModelSnapshot) -> HTTPException:
    known = ", ".join(window.window for window in model.windows)
    return HTTPException(404, f"no such window with anything in it; there are: {known or 'none'}")


def _counts(take: Callable[[], Mapping[str, Any]] | None, model: str | None, segment: str | None) -> Response:
    try:
        by_model = take() if take is not None else {}
    except TimeoutError as error:
        return json_response({"detail": str(error)}, 503)
    if model is not None and model not in by_model:
        return json_response({"detail": "no such model", "models": sorted(by_model)}, 404)
    chosen = by_model if model is None else {model: by_model[model]}
    return json_response(chosen if segment is None else {name: _only(held, segment) for name, held in chosen.items()})


def _only(held: Mapping[str, Any], segment: str) -> dict[str, Any]:
    segments = held.get("segments", {})
    return {"segments": {segment: segments[segment]} if segment in segments else {}}
