"""The last good map documents on disk, so that a restart without the broker serves what was served before.

One file per model, its name a hash of the model's; the content is the document as it came, verified again when it is
read. Files are written beside their place and renamed over it, so that a crash leaves the old one or the new one.
Processes may share a directory; whoever writes last wins, and all of them follow the same topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamcal.errors import StreamcalError

__all__ = ["CachedFile", "MapCache"]

_SUFFIX: Final = ".map.json"
_UNFINISHED: Final = ".tmp"
_HEARD: Final = "heard"
"""An empty file; its modification time is when the source last answered."""
_ABANDONED_S: Final = 3600.0
"""A write takes milliseconds: what lies unfinished for an hour is of a process that was killed."""


class CachedFile(NamedTuple):
    """A document found on disk, or why it cannot be read."""

    path: Path
    data: bytes
    error: str


class MapCache:
    """Documents by model in one directory.

    Parameters
    ----------
    directory : str or path
        Made if it does not exist.

    Raises
    ------
    StreamcalError
        If it cannot be made, or not be written to.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write("writable", b"")
            (self.directory / "writable").unlink(missing_ok=True)
        except OSError as cause:
            what = f"cannot be written to: {cause.strerror or cause}"
            hint = "give the process a directory of its own that outlives it, or no cache"
            raise StreamcalError(what, where=f"map cache {self.directory}", hint=hint) from cause

    def read(self, now_s: float) -> Iterator[CachedFile]:
        """Every document kept, in the order of file names; removes what a killed process left unfinished."""
        for path in sorted(self.directory.iterdir()):
            try:
                if path.name.endswith(_SUFFIX):
                    yield CachedFile(path, path.read_bytes(), "")
                elif path.name.endswith(_UNFINISHED) and now_s - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()
            except OSError as error:
                yield CachedFile(path, b"", error.strerror or str(error))

    def put(self, model: str, data: bytes) -> None:
        """Keep a document in place of the one before; raises OSError."""
        self._write(_file_name(model), data)

    def remove(self, model: str) -> None:
        """Forget a model's document, if there is one; raises OSError."""
        (self.directory / _file_name(model)).unlink(missing_ok=True)

    def heard(self, now_s: float) -> None:
        """Note that the source has answered; raises OSError."""
        path = self.directory / _HEARD
        path.touch()
        os.utime(path, (now_s, now_s))

    def heard_s(self) -> float | None:
        """When the source last answered, seconds since the epoch; None if it never did."""
        try:
            return (self.directory / _HEARD).stat().st_mtime
        except OSError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        unfinished = self.directory / f".{name}.{os.urandom(8).hex()}{_UNFINISHED}"
        try:
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.directory / name)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        # The name is durable only once the directory is.
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _file_name(model: str) -> str:
    # Loaded here, as in `streamcal.maps.document`; a model's name itself may be too long for a file's, or hold a slash.
    from hashlib import sha256  # noqa: PLC0415

    return sha256(model.encode()).hexdigest()[:32] + _SUFFIX
