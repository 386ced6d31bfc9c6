"""The map document: what the maps topic carries, one JSON object per promoted map.

The bytes are *canonical*: keys sorted, no spaces, UTF-8, integers without a point, every other number in the
shortest form that reads back to the same float64 (``0.1``, ``1.0``, ``1e-07``). ``hash`` is ``sha256:`` and the hex
digest of the canonical bytes of the document without its ``hash`` and ``signature``; it protects against damage. The
``signature`` protects against an author who may write the topic and should not; it may be left out, and
`streamcal.maps.signing` makes and checks it. `map.schema.json` beside this module describes the same object.

A reader keeps what it has when a document does not verify. Whatever would change the meaning of a map for a reader
that ignored it raises `SCHEMA_VERSION`; unknown fields are therefore errors. A signature changes no meaning: documents
with and without one are both of version 1, and those without have the bytes they always had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from streamcal import __version__
from streamcal.errors import MapDocumentError
from streamcal.maps.compiled import CompiledMap, SegmentTable
from streamcal.maps.families import Map, from_parameters

__all__ = [
    "SCHEMA_VERSION",
    "Counts",
    "FitWindow",
    "MapDocument",
    "NewerSchemaError",
    "Signature",
    "content_hash",
    "decode",
    "encode",
    "new_document",
    "signed_bytes",
]

SCHEMA_VERSION: Final = 1

Millis = Annotated[int, msgspec.Meta(ge=0, le=4_102_444_800_000)]  # up to 2100-01-01, the last event time accepted
Count = Annotated[int, msgspec.Meta(ge=0)]


class NewerSchemaError(MapDocumentError):
    """The document is sound but written for a later schema than this release reads."""


class FitWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Panes fitted on: [from_ms, to_ms) of event time."""

    from_ms: Millis
    to_ms: Millis


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Labelled predictions fitted on."""

    n: Count
    positives: Count


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who vouches for a document.

    Attributes
    ----------
    algorithm : str
        ``hmac-sha256`` or ``ed25519``.
    key_id : str
        Derived from the key, so that a reader with several finds the right one.
    value : str
        Hexadecimal digits.
    """

    algorithm: Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]+$")]
    key_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    value: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})+$")]


class MapDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version of one model's map.

    Attributes
    ----------
    schema_version : int
    model : str
        Also the key of the record.
    version : int
        Grows with every map of the model; the highest one read is in force.
    family : str
    parameters : dict of str to float or list of float
        As `streamcal.maps.families` takes them.
    segments : dict
        Segment key to ``offset`` and perhaps ``slope``, applied to the logit the family serves; see
        `streamcal.maps.compiled`.
    fit_window : FitWindow or None
        None where the map comes from a configuration and not from labels.
    counts : Counts
    evidence : dict of str to float
        Why it was promoted: ``gain`` (nats of log loss over the champion on the hold-out), ``holdout_n`` and so on.
    parent : int or None
        Version in force before.
    at_ms : int
        Event time of the decision.
    product_version : str
        Release of streamcal that wrote it.
    hash : str
    signature : Signature or UNSET
        Left out of the bytes where it is unset; null is no form of it.
    """

    schema_version: int
    model: Annotated[str, msgspec.Meta(min_length=1)]
    version: Annotated[int, msgspec.Meta(ge=1)]
    family: str
    parameters: dict[str, float | list[float]]
    segments: dict[str, dict[str, float]]
    fit_window: FitWindow | None
    counts: Counts
    evidence: dict[str, float]
    parent: Count | None
    at_ms: Millis
    product_version: str
    hash: str
    signature: Signature | msgspec.UnsetType = msgspec.UNSET

    def to_map(self) -> Map:
        """The family alone, without `segments`; raises `MapDocumentError` as `from_parameters` does."""
        return from_parameters(self.family, self.parameters)

    def compile(self) -> CompiledMap:
        """The whole map, segments included; raises `MapDocumentError` where it describes no usable one."""
        map_ = self.to_map()
        try:
            return CompiledMap(map_, self.segments)
        except ValueError as cause:
            raise MapDocumentError(str(cause)) from cause


class _Envelope(msgspec.Struct):
    """The one field every schema version has."""

    schema_version: int


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def content_hash(document: MapDocument) -> str:
    """The hash `document` must carry; its hash and signature do not matter."""
    # Loaded here: OpenSSL takes 3 ms, which whoever has no map yet need not wait for.
    from hashlib import sha256  # noqa: PLC0415

    content = _without(document, "hash", "signature")
    return f"sha256:{sha256(_canonical(content)).hexdigest()}"


def signed_bytes(document: MapDocument, key: str) -> bytes:
    """What a signature is over: the record's key, a line feed, and the canonical bytes without ``signature``.

    The key is in it so that a candidate (key ``<model>#shadow``) cannot be filed under the model itself.
    """
    return key.encode() + b"\n" + _canonical(_without(document, "signature"))


def _without(document: MapDocument, *names: str) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(document)
    return {name: value for name, value in content.items() if name not in names}


def new_document(  # noqa: PLR0913 -- the fields of the document
    model: str,
    version: int,
    map_: Map,
    *,
    at_ms: int,
    fit_window: FitWindow | None = None,
    counts: Counts | None = None,
    evidence: Mapping[str, float] | None = None,
    parent: int | None = None,
    segments: SegmentTable | None = None,
) -> MapDocument:
    """A sealed document of `map_`.

    Parameters
    ----------
    model : str
    version : int
        At least 1.
    map_ : Map
    at_ms : int
        Event time of the decision, ms.
    fit_window, counts, evidence, parent, segments
        See `MapDocument`; left out for a map from a configuration.

    Raises
    ------
    MapDocumentError
        If `segments` are not as `streamcal.maps.compiled` takes them.

    Returns
    -------
    MapDocument
        With its hash.

    Examples
    --------
    >>> from streamcal.maps.families import Identity
    >>> document = new_document("default", 1, Identity(), at_ms=0)
    >>> decode(encode(document)) == document
    True
    """
    document = MapDocument(
        schema_version=SCHEMA_VERSION,
        model=model,
        version=version,
        family=map_.family,
        parameters={name: _floats(value) for name, value in map_.parameters().items()},
        segments={
            key: {name: float(value) for name, value in entry.items()} for key, entry in (segments or {}).items()
        },
        fit_window=fit_window,
        counts=counts if counts is not None else Counts(0, 0),
        evidence={name: float(value) for name, value in (evidence or {}).items()},
        parent=parent,
        at_ms=at_ms,
        product_version=__version__,
        hash="",
    )
    document.compile()
    return msgspec.structs.replace(document, hash=content_hash(document))


def _floats(value: float | list[float]) -> float | list[float]:
    return [float(item) for item in value] if isinstance(value, list) else float(value)


def encode(document: MapDocument) -> bytes:
    """Canonical bytes of a document.

    Raises
    ------
    ValueError
        If a number in it is not finite.
    """
    return _canonical(msgspec.to_builtins(document))


def decode(data: bytes) -> MapDocument:
    """Read and verify a document; spaces and the order of keys do not matter.

    Raises
    ------
    NewerSchemaError
        If its schema version is later than `SCHEMA_VERSION`.
    MapDocumentError
        If it is not a document, its hash does not fit its content, or it describes no usable map.
    """
    try:
        schema_version = msgspec.json.decode(data, type=_Envelope).schema_version
    except msgspec.DecodeError as cause:
        raise MapDocumentError(f"not a map document: {cause}") from cause
    if schema_version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"map document of schema version {schema_version}; this release reads up to {SCHEMA_VERSION}",
            hint="upgrade streamcal in this process; the last good map stays in force",
        )
    if schema_version != SCHEMA_VERSION:
        raise MapDocumentError(f"map document of schema version {schema_version}, which never existed")
    try:
        document = msgspec.json.decode(data, type=MapDocument)
    except msgspec.DecodeError as cause:
        raise MapDocumentError(f"not a map document: {cause}") from cause
    _verify(document)
    return document


def _verify(document: MapDocument) -> None:
    where = f"map {document.model} version {document.version}"
    expected = content_hash(document)
    if document.hash != expected:
        raise MapDocumentError(
            f"content hash {document.hash!r} does not fit the content ({expected})",
            where=where,
            hint="the document was changed or damaged after it was written",
        )
    document.compile()
