"""Where map documents come from: files, memory, or (in `kafka_source`) the maps topic."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileSource", "MapSource", "MapUpdate", "MemorySource"]


class MapUpdate(NamedTuple):
    """One thing a source has to say.

    Attributes
    ----------
    model : str or None
        Model the update is filed under; None where the source has no keys and the document names it.
    data : bytes or None
        A map document; None withdraws the model's map.
    """

    model: str | None
    data: bytes | None


class MapSource(Protocol):
    """A stream of map documents. One thread at a time calls it; only `interrupt` may come from another."""

    @property
    def caught_up(self) -> bool:
        """Whether everything that existed when reading began has been returned."""
        ...

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        """What is new, in order; waits at most about `timeout_s` for something, and may return nothing."""
        ...

    def interrupt(self) -> None:
        """Make a waiting `poll` return soon; called from another thread, once nothing more is wanted."""
        ...

    def close(self) -> None:
        """Release what the source holds, after the last `poll`."""
        ...


class MemorySource:
    """Documents handed over in the same process: the embedded log, and tests.

    >>> source = MemorySource()
    >>> source.publish("default", b"{}")
    >>> [update.model for update in source.poll(0.0)]
    ['default']
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._updates: list[MapUpdate] = []
        self._interrupted = False

    @property
    def caught_up(self) -> bool:
        """True once everything published has been polled."""
        return not self._updates

    def publish(self, model: str | None, data: bytes | None) -> None:
        """Hand over a document, or None to withdraw the map of `model`."""
        with self._changed:
            self._updates.append(MapUpdate(model, data))
            self._changed.notify_all()

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        """See `MapSource.poll`."""
        with self._changed:
            self._changed.wait_for(lambda: self._updates or self._interrupted, timeout_s)
            updates, self._updates = self._updates, []
        return updates

    def interrupt(self) -> None:
        """See `MapSource.interrupt`."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing to release."""


class FileSource:
    """Documents in files, one per file, read again when a file changes.

    A file that is missing, or vanishes, changes nothing: the map read last stays in force. Write a new version
    beside the file and rename it over; a half-written one is refused by its hash and read again at its next change.

    Parameters
    ----------
    *paths : str or path
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        # Loaded here: 3 ms, which whoever follows a topic need not wait for.
        from pathlib import Path  # noqa: PLC0415

        if not paths:
            raise ValueError("FileSource needs at least one path")
        self._seen: dict[Path, tuple[int, int, int] | None] = {Path(path): None for path in paths}
        self._interrupted = threading.Event()
        self._looked = False

    @property
    def caught_up(self) -> bool:
        """True once every file has been looked at."""
        return self._looked

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        """See `MapSource.poll`; looks at once, then once more after `timeout_s` if nothing has changed."""
        updates = self._changes()
        if not updates and timeout_s > 0 and self._looked:
            self._interrupted.wait(timeout_s)
            updates = self._changes()
        self._looked = True
        return updates

    def interrupt(self) -> None:
        """See `MapSource.interrupt`."""
        self._interrupted.set()

    def close(self) -> None:
        """Nothing to release."""

    def _changes(self) -> list[MapUpdate]:
        updates = []
        for path, seen in self._seen.items():
            try:
                stat = path.stat()
                # The inode too: a rename can leave size and a coarse modification time as they were.
                found = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                if found == seen:
                    continue
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            self._seen[path] = found
            updates.append(MapUpdate(None, data))
        return updates
