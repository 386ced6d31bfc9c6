"""Trees of state as bytes: MessagePack, arrays as an extension of dtype, shape and little-endian data."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from streamcal.errors import StateFormatError
from streamcal.state.trees import Tree

__all__ = ["pack", "unpack"]

_ARRAY: Final = 1
_DTYPES: Final = frozenset("?bBhHiIlLqQfd")
"""Kinds of numbers an array may hold; never objects."""


def pack(tree: Tree) -> bytes:
    """Bytes of a tree; equal trees give equal bytes."""
    return _ENCODER.encode(tree)


def unpack(data: bytes | memoryview) -> Tree:
    """The tree that `pack` wrote.

    Raises
    ------
    StateFormatError
        The bytes are damaged or no state.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise StateFormatError(f"the saved state cannot be read: {error}") from error


def _packed(value: Any) -> msgspec.msgpack.Ext:
    if not isinstance(value, np.ndarray) or value.dtype.char not in _DTYPES:
        message = f"{type(value).__name__} cannot be written to a state"
        raise TypeError(message)
    data = np.ascontiguousarray(value)
    head = msgspec.msgpack.encode([data.dtype.str, list(value.shape)])
    return msgspec.msgpack.Ext(_ARRAY, b"".join([bytes([len(head)]), head, data.data]))


def _unpacked(code: int, data: memoryview) -> np.ndarray[Any, Any]:
    if code != _ARRAY:
        message = f"extension {code} is unknown"
        raise ValueError(message)
    stop = 1 + data[0]
    kind, shape = msgspec.msgpack.decode(data[1:stop])
    dtype = np.dtype(kind)
    if dtype.char not in _DTYPES:
        message = f"arrays of {kind} are not part of a state"
        raise ValueError(message)
    return np.frombuffer(data[stop:], dtype=dtype).reshape(shape).copy()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_packed)
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_unpacked)
