"""Keys in files: whose signatures a transformer accepts. Not loaded by `streamcal.transform` itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from streamcal.errors import StreamcalError
from streamcal.maps.signing import Verifier
from streamcal.maps.signing_keys import SigningKey, parse_signing_key, parse_verify_key

__all__ = ["read_signing_key", "read_verifier"]

_K = TypeVar("_K")


def read_verifier(*paths: str | os.PathLike[str]) -> Verifier:
    """The verifier that accepts the keys in these files, one in each.

    Raises
    ------
    StreamcalError
        If a file cannot be read or holds no key, or there is none; the message repeats nothing of the content.
    """
    if not paths:
        raise StreamcalError("no key file is given", hint="without one documents are not verified: pass no verifier")
    return Verifier([_read(path, parse_verify_key) for path in paths])


def read_signing_key(path: str | os.PathLike[str]) -> SigningKey:
    """The key in a file; raises StreamcalError as `read_verifier` does."""
    return _read(path, parse_signing_key)


def _read(path: str | os.PathLike[str], parse: Callable[[bytes], _K]) -> _K:
    where = f"key file {os.fspath(path)}"
    try:
        return parse(Path(path).read_bytes())
    except OSError as cause:
        raise StreamcalError(f"cannot be read: {cause.strerror}", where=where) from cause
    except ValueError as cause:
        hint = "a key file holds one Ed25519 key (PEM), or a secret of 32 bytes or more; see docs/map-format.md"
        raise StreamcalError(str(cause), where=where, hint=hint) from cause
