"""`CalibrationTransformer`: the map in force, applied to live scores where they are made.

One background thread follows the source and puts new entries in place for every change (`table` has the rules);
callers read them through a single attribute, which is atomic in Python, and never wait. Nobody ever sees half a
change: entries are not altered once in place, and a map and its version are one entry. A forked child has no such
thread: make the transformer after the fork (`TransformerStatus.following` tells).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamcal.transform.source import MapSource
from streamcal.transform.table import NO_MAP, Entry, MapStatus, MapTable, Problem

__all__ = ["CalibrationTransformer", "TransformerStatus"]

_POLL_S: Final = 0.5
"""Longest wait inside one poll of the source: bounds how old a file's map can be and how long `close` takes."""
_RETRY_S: Final = 1.0
"""Pause after the source failed: long enough not to spin, short against the seconds in which a map should spread."""
_EXCESS: Final = 1e-6
"""By how much a score may leave [0, 1] and still be taken as rounding, as for scores in the topics."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TransformerStatus:
    """What a health check wants to know.

    Attributes
    ----------
    maps : mapping
        Model to the map in force.
    problems : mapping
        Reason (`PROBLEMS`) to how often.
    last_problem : str
        The latest one in words; empty when there was none.
    unmapped : int
        Scores returned as they came, for want of a map.
    following : bool
        Whether the background thread lives.
    caught_up : bool
        Whether everything the source held at the start has been read.
    """

    maps: Mapping[str, MapStatus]
    problems: Mapping[str, int]
    last_problem: str
    unmapped: int
    following: bool
    caught_up: bool


class CalibrationTransformer:
    """Applies the newest calibration maps of a source to scores; safe to share between threads.

    Parameters
    ----------
    source : MapSource
        Read once before the constructor returns, then in the background. Closed with the transformer.

    Examples
    --------
    >>> from streamcal.transform import MemorySource
    >>> with CalibrationTransformer(MemorySource()) as transformer:
    ...     transformer.transform(0.3)
    (0.3, 0)
    """

    def __init__(self, source: MapSource) -> None:
        self._source = source
        self._maps = MapTable()
        self._entries: Mapping[str, Entry] = self._maps.entries
        self._changed = threading.Condition()  # guards the four below, none of them on the path of a mapped score
        self._problems: Counter[str] = Counter()
        self._last_problem = ""
        self._unmapped = 0
        self._caught_up = False
        self._stop = threading.Event()
        self._follow_once(0.0)
        self._thread = threading.Thread(target=self._follow, name="streamcal-maps", daemon=True)
        self._thread.start()

    # -- live scores ------------------------------------------------------------------------------------------

    @overload
    def transform(
        self, score: float, model: str = "default", segments: Mapping[str, str] | None = None
    ) -> tuple[float, int]: ...

    @overload
    def transform(
        self, score: ArrayLike, model: str = "default", segments: Mapping[str, str | Sequence[str]] | None = None
    ) -> tuple[Floats, int]: ...

    def transform(
        self,
        score: float | ArrayLike,
        model: str = "default",
        segments: Mapping[str, Any] | None = None,
    ) -> tuple[float | Floats, int]:
        """Calibrate raw scores.

        Parameters
        ----------
        score : float or array_like
            Raw scores in [0, 1]; an excess up to 1e-6 is rounding.
        model : str
            Model that made them.
        segments : mapping, optional
            Dimension to value; for an array also to a column with one value per score. Decides which of the map's
            corrections per segment applies, where it has any.

        Returns
        -------
        calibrated : float or float64 array
            As the input: a float for a number, else an array of its shape.
        map_version : int
            Version of the map applied; `NO_MAP` (0) where there was none and the scores are returned as they are.

        Raises
        ------
        ValueError
            If a score is not a finite number in [0, 1], or a column of segments has another length.
        """
        entry = self._entries.get(model)
        if type(score) is float and 0.0 <= score <= 1.0:
            if entry is not None:
                if entry.compiled is None:
                    return entry.apply_one(score), entry.version
                return entry.compiled.apply_one(score, segments), entry.version
            self._count_unmapped(1)
            return score, NO_MAP
        return self._transform_any(score, entry, segments)

    def _transform_any(
        self, score: float | ArrayLike, entry: Entry | None, segments: Mapping[str, Any] | None
    ) -> tuple[float | Floats, int]:
        scores = _checked(score)
        served: Any
        if entry is None:
            self._count_unmapped(scores.size)
            served = scores.copy() if scores.ndim else float(scores)
            return served, NO_MAP
        if entry.compiled is not None:
            compiled = entry.compiled
            served = compiled.apply(scores, segments) if scores.ndim else compiled.apply_one(float(scores), segments)
            return served, entry.version
        served = entry.apply(scores) if scores.ndim else entry.apply_one(float(scores))
        return served, entry.version

    def _count_unmapped(self, count: int) -> None:
        with self._changed:
            self._unmapped += count

    # -- what is in force -------------------------------------------------------------------------------------

    @property
    def problems(self) -> Mapping[str, int]:
        """Updates not taken, by reason (`PROBLEMS`)."""
        with self._changed:
            return dict(self._problems)

    def status(self) -> TransformerStatus:
        """The maps in force and what went wrong."""
        entries = self._entries
        with self._changed:
            return TransformerStatus(
                maps={model: entry.status for model, entry in entries.items()},
                problems=dict(self._problems),
                last_problem=self._last_problem,
                unmapped=self._unmapped,
                following=self._thread.is_alive(),
                caught_up=self._caught_up,
            )

    def wait_caught_up(self, timeout_s: float | None = None) -> bool:
        """Wait until everything the source held at the start is in force; False when the time is over first.

        Call it before serving from a topic, so that the first scores do not go out uncalibrated.
        """
        return self.wait_until(lambda status: status.caught_up, timeout_s)

    def wait_until(self, met: Callable[[TransformerStatus], bool], timeout_s: float | None = None) -> bool:
        """Wait until the status satisfies `met`, asked after each change; False when the time is over first.

        >>> from streamcal.transform import MemorySource
        >>> with CalibrationTransformer(MemorySource()) as transformer:
        ...     transformer.wait_until(lambda status: not status.maps)
        True
        """
        with self._changed:
            return self._changed.wait_for(lambda: met(self.status()), timeout_s)

    def close(self) -> None:
        """Stop following; maps in force stay in force. May be called twice."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._source.interrupt()
        self._thread.join()
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the background thread --------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._follow_once(_POLL_S)

    def _follow_once(self, timeout_s: float) -> None:
        try:
            updates = self._source.poll(timeout_s)
            caught_up = self._source.caught_up
        except Exception as error:  # noqa: BLE001 -- whatever a source fails with, the last good maps stay in force
            self._problem(Problem("source", f"{type(error).__name__}: {error}"))
            self._stop.wait(_RETRY_S if timeout_s else 0.0)
            return
        for update in updates:
            problem = self._maps.take(update)
            self._entries = self._maps.entries
            if problem is not None:
                self._problem(problem)
        with self._changed:
            self._caught_up = self._caught_up or caught_up
            self._changed.notify_all()

    def _problem(self, problem: Problem) -> None:
        with self._changed:
            self._problems[problem.reason] += 1
            self._last_problem = problem.text
            self._changed.notify_all()


def _checked(score: float | ArrayLike) -> Floats:
    """Scores as float64 in [0, 1], perhaps the array given; raises ValueError with the first value that is none."""
    given = np.asarray(score)
    if given.dtype.kind not in "fiu":
        raise ValueError(f"score {score!r} is not a number")
    scores: Floats = given.astype(np.float64, copy=False)
    if not scores.size:
        return scores
    lowest, highest = scores.min(), scores.max()
    if lowest >= 0.0 and highest <= 1.0:
        return scores
    # NaN is the minimum of whatever holds one, and fails every comparison.
    if not (lowest >= -_EXCESS and highest <= 1.0 + _EXCESS):
        good = (scores >= -_EXCESS) & (scores <= 1.0 + _EXCESS)
        raise ValueError(f"score {float(scores[~good].flat[0])!r} is not in [0, 1]")
    clipped: Floats = np.minimum(np.maximum(scores, 0.0), 1.0)
    return clipped
