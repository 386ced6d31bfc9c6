"""What a reset of the state says to whoever claims it next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import msgspec

from streamcal.errors import StateFormatError

__all__ = ["CountsReset", "SourceReset"]


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    at_ms: int = 0
    """Wall clock."""

    def to_bytes(self) -> bytes:
        """For the state log."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises
        ------
        StateFormatError
            It cannot be read, or a later release wrote it.
        """
        try:
            found = msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise StateFormatError(f"a reset of the state cannot be read: {error}") from error
        if found.format > _FORMAT:
            raise StateFormatError(
                f"the state was reset in format {found.format}, this release knows {_FORMAT}",
                hint="Run the release that did it, or a later one.",
            )
        return found


_FORMAT: Final = 1


class SourceReset(_Marker, frozen=True, kw_only=True):
    """Of one partition of the inputs.

    Attributes
    ----------
    begin : mapping of str to int
        Topic to the offset to begin at; a topic that is not there begins as for a new group.
    """

    begin: Mapping[str, int] = {}


class CountsReset(_Marker, frozen=True, kw_only=True):
    """Of one partition of the counts topic.

    Attributes
    ----------
    position : int
        Offset of the first record that counts.
    floors : mapping of int to int
        Source to the number below which its claims are void.
    """

    position: int = 0
    floors: Mapping[int, int] = {}
