"""Log records as the codec gets them, made by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamcal.stream.codec import OutcomeDecoder, OutcomeFields, PredictionDecoder, PredictionFields
from streamcal.stream.events import Names, OutcomeBatch, PredictionBatch

T = 1_700_000_000_000
LIMITS: dict[str, Any] = {"max_future_ms": 300_000, "max_weight": 1000.0, "sample_rate": 1.0, "max_bytes": 1_048_576}


@dataclass(frozen=True)
class RawRecord:
    value: bytes | None
    timestamp: int | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    offset: int = 0


def raw(value: object, **rest: Any) -> RawRecord:
    """A record of this JSON value (bytes as they are, None a tombstone)."""
    return RawRecord(value if value is None or isinstance(value, bytes) else json.dumps(value).encode(), **rest)


def prediction(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "score": 0.3, "ts": T, **fields}


def outcome(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "label": 1, "ts": T, **fields}


def predictions(
    *records: RawRecord,
    fields: PredictionFields | None = None,
    names: Names | None = None,
    fast: bool = True,
    **limits: Any,
) -> PredictionBatch:
    names = names or Names(("country", "device"))
    return PredictionDecoder(fields or PredictionFields(), names, **(LIMITS | limits), fast=fast).decode(records)


def outcomes(
    *records: RawRecord,
    fields: OutcomeFields | None = None,
    names: Names | None = None,
    fast: bool = True,
    **limits: Any,
) -> OutcomeBatch:
    names = names or Names(())
    return OutcomeDecoder(fields or OutcomeFields(), names, **(LIMITS | limits), fast=fast).decode(records)


def fate(batch: PredictionBatch | OutcomeBatch) -> str:
    """What became of the one record of a batch: ``accepted``, ``ignored`` or the reason."""
    if len(batch.row):
        return "accepted"
    return batch.rejected[0].reason if batch.rejected else "ignored"
