"""Signatures of map documents: whoever may write the maps topic moves money.

Two kinds of key. ``hmac-sha256`` needs only the standard library, but every reader holds the secret and could sign
too. With ``ed25519`` (the extra ``signing``) readers hold a public key only. A key file holds one key: PEM for
Ed25519, as OpenSSL writes it, and otherwise the secret of an HMAC as text.

A key's id is derived from the key: nothing to configure, and no way to name it wrongly. The key found by the id of a
signature decides the algorithm, never the document. For a rotation readers are given the new key beside the old one,
then the writer signs with the new one, then the old one is taken away.

Not in here: a record without a value withdraws a map and can carry no signature, so readers that verify refuse it;
and an old document stays validly signed, so a topic put back to an older state is noticed only by readers that have
seen a higher version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument, Signature, decode, encode, signed_bytes
from streamcal.maps.signing_keys import SigningKey, VerifyKey

__all__ = ["BadSignatureError", "Verified", "Verifier", "sign", "sign_record", "verified"]


class BadSignatureError(MapDocumentError):
    """A document is not signed, or not by a key that is accepted."""


class Verifier:
    """Accepts documents signed by any of its keys; immutable, safe to share between threads.

    Parameters
    ----------
    keys : iterable of VerifyKey
        At least one.

    Raises
    ------
    ValueError
        If there is none.
    """

    def __init__(self, keys: Iterable[VerifyKey]) -> None:
        self._keys = {(key.algorithm, key.key_id): key for key in keys}
        if not self._keys:
            raise ValueError("a verifier needs at least one key")

    @property
    def keys(self) -> tuple[VerifyKey, ...]:
        """The keys accepted."""
        return tuple(self._keys.values())

    def check(self, document: MapDocument, key: str | None = None) -> None:
        """Return if the document is signed by a key of these.

        Parameters
        ----------
        document : MapDocument
        key : str or None
            Key of the record; None, for a document in a file, is the model's name.

        Raises
        ------
        BadSignatureError
            If it is not.
        """
        signature = document.signature
        where = f"map {document.model} version {document.version}"
        if isinstance(signature, msgspec.UnsetType):
            raise BadSignatureError("is not signed, and unsigned maps are not accepted here", where=where)
        found = self._keys.get((signature.algorithm, signature.key_id))
        if found is None:
            accepted = ", ".join(held.key_id for held in self.keys)
            what = f"is signed by {signature.algorithm} key {signature.key_id}; accepted: {accepted}"
            raise BadSignatureError(what, where=where, hint="after a rotation readers need the new key as well")
        message = signed_bytes(document, document.model if key is None else key)
        if not found.verify(message, bytes.fromhex(signature.value)):
            raise BadSignatureError(f"its signature by key {signature.key_id} does not fit", where=where)


def sign(document: MapDocument, by: SigningKey, key: str | None = None) -> MapDocument:
    """The document with a signature, in place of the one it may have; its hash stays.

    Parameters
    ----------
    document : MapDocument
    by : SigningKey
    key : str or None
        Key of the record it will be; None is the model's name.

    Examples
    --------
    >>> from streamcal.maps.document import new_document
    >>> from streamcal.maps.families import Identity
    >>> from streamcal.maps.signing_keys import HmacKey
    >>> secret = HmacKey(bytes(32))
    >>> Verifier([secret]).check(sign(new_document("m", 1, Identity(), at_ms=0), secret))
    """
    value = by.sign(signed_bytes(document, document.model if key is None else key))
    return msgspec.structs.replace(document, signature=Signature(by.algorithm, by.key_id, value.hex()))


def sign_record(key: str, data: bytes, by: SigningKey) -> bytes:
    """The value of a record of the maps topic, signed for its key; raises MapDocumentError if it is no document."""
    return encode(sign(decode(data), by, key))


class Verified(NamedTuple):
    """Records that were looked at.

    Attributes
    ----------
    accepted : list of bytes
        In their order.
    refused : list of MapDocumentError
        One for each that was not accepted; count them as ``bad_signature``.
    """

    accepted: list[bytes]
    refused: list[MapDocumentError]


def verified(key: str, records: Sequence[bytes], verifier: Verifier | None) -> Verified:
    """Which values under one key of the maps topic may be taken over; None for `verifier` accepts all.

    With a verifier what is no document is refused like what is not signed: whoever can write the topic, and holds no
    key, cannot keep a daemon from starting.
    """
    if verifier is None:
        return Verified(list(records), [])
    result = Verified([], [])
    for data in records:
        try:
            verifier.check(decode(data), key)
        except MapDocumentError as error:
            result.refused.append(error)
        else:
            result.accepted.append(data)
    return result
