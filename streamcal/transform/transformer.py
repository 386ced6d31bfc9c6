"""`CalibrationTransformer`: the map in force, applied to live scores where they are made.

One background thread follows the source and puts a new view in place for every change (`following`; `table` has the
rules); callers read it through a single attribute, which is atomic in Python, and never wait. Nobody ever sees half a
change: a view is not altered once in place, and a map and its version are one entry. A forked child has no such
thread: make the transformer after the fork (`TransformerStatus.following` tells).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamcal.transform.following import Following, StaleRule, View
from streamcal.transform.scores import checked, served
from streamcal.transform.source import MapSource
from streamcal.transform.status import NO_MAP, TransformerStatus
from streamcal.transform.table import Entry, MapTable

if TYPE_CHECKING:  # loaded by whoever has keys
    from streamcal.maps.signing import Verifier

__all__ = ["CalibrationTransformer"]

Floats = NDArray[np.float64]


class CalibrationTransformer:
    """Applies the newest calibration maps of a source to scores; safe to share between threads.

    Parameters
    ----------
    source : MapSource
        Read once before the constructor returns, then in the background. Closed with the transformer.
    verifier : Verifier, optional
        Whose signatures count (`streamcal.transform.keys.read_verifier`): documents without one of them are refused
        and the last good map stays. None takes documents as they are.
    cache : str or path, optional
        Directory for the last good documents: a start without the source serves what was served before.
    stale_after_s : float, optional
        Seconds of silence of the source after which maps are stale. None: never.
    when_stale : {"last_good", "identity"}
        Whether stale maps are applied all the same, or scores returned as they are.
    clock : callable
        Seconds since the epoch.

    Raises
    ------
    StreamcalError
        If the cache cannot be written to.
    ValueError
        If `stale_after_s` is not above 0, or `when_stale` is neither of the two.

    Examples
    --------
    >>> from streamcal.transform import MemorySource
    >>> with CalibrationTransformer(MemorySource()) as transformer:
    ...     transformer.transform(0.3)
    (0.3, 0)
    """

    def __init__(
        self,
        source: MapSource,
        *,
        verifier: Verifier | None = None,
        cache: str | os.PathLike[str] | None = None,
        stale_after_s: float | None = None,
        when_stale: Literal["last_good", "identity"] = "last_good",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if stale_after_s is not None and not stale_after_s > 0.0:
            raise ValueError(f"stale_after_s {stale_after_s!r} is not above 0")
        if when_stale not in ("last_good", "identity"):
            raise ValueError(f"when_stale {when_stale!r} is neither last_good nor identity")
        kept = None
        if cache is not None:
            from streamcal.transform.cache import MapCache  # noqa: PLC0415 -- only where one is asked for

            kept = MapCache(cache)
        rule = StaleRule(stale_after_s, when_stale == "identity")
        self._following = Following(source, MapTable(verifier), kept, rule, clock)

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
        view = self._following.view
        entry = view.entries.get(model)
        if type(score) is float and 0.0 <= score <= 1.0:
            if entry is None:
                view.count_unmapped(1)
                return score, NO_MAP
            entry.tally(1)
            if entry.compiled is None:
                return entry.apply_one(score), entry.version
            return entry.compiled.apply_one(score, segments), entry.version
        return _transform_any(score, view, entry, segments)

    def transform_classes(
        self,
        scores: Mapping[str, ArrayLike] | ArrayLike,
        model: str = "default",
        classes: Sequence[str] | None = None,
        segments: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any] | Floats, dict[str, int]]:
        """Calibrate the scores of several classes, each against the rest; the results sum to 1.

        The map of class ``c`` is that of the model ``<model>/<c>``; a class without one keeps its score, divided by
        the row's sum. All classes of a call are served by one state of the maps.

        Parameters
        ----------
        scores : mapping or array_like
            Class to a score, or to an array of one shape for all; or an array whose last axis is the classes. In
            [0, 1]; divided by their sum first.
        model : str
        classes : sequence of str, optional
            Names along the last axis; needed for an array. For a mapping, the classes it must have.
        segments : mapping, optional
            Dimension to the value all rows share, or to one value per row.

        Returns
        -------
        calibrated : dict or float64 array
            As the scores.
        map_versions : dict
            Class to the version of its map, `NO_MAP` (0) where there was none.

        Raises
        ------
        ValueError
            If classes are missing, repeated or too many, shapes differ, a score is not a finite number in [0, 1], or
            a row's scores are all 0.

        Examples
        --------
        >>> from streamcal.transform import MemorySource
        >>> with CalibrationTransformer(MemorySource()) as transformer:
        ...     transformer.transform_classes({"cat": 0.75, "dog": 0.75})
        ({'cat': 0.5, 'dog': 0.5}, {'cat': 0, 'dog': 0})
        """
        # Loaded here: whoever has one score per prediction does not need it.
        from streamcal.maps.classes import class_model, serve_classes  # noqa: PLC0415
        from streamcal.transform.classes import class_scores  # noqa: PLC0415

        view = self._following.view
        given = class_scores(scores, classes)
        entries = [view.entries.get(class_model(model, name)) for name in given.names]
        columns = serve_classes(given.columns, [_applied(entry, segments) for entry in entries])
        for entry in entries:
            count = view.count_unmapped if entry is None else entry.tally
            count(columns[0].size)
        versions = [NO_MAP if entry is None else entry.version for entry in entries]
        return given.answer(columns), dict(zip(given.names, versions, strict=True))

    # -- what is in force -------------------------------------------------------------------------------------

    @property
    def problems(self) -> Mapping[str, int]:
        """Updates not taken, by reason (`PROBLEMS`)."""
        return self.status().problems

    def status(self) -> TransformerStatus:
        """The maps in force, what went wrong and what was counted."""
        return self._following.status()

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
        return self._following.wait_until(met, timeout_s)

    def close(self) -> None:
        """Stop following; maps in force stay in force. May be called twice."""
        self._following.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _transform_any(
    score: float | ArrayLike, view: View, entry: Entry | None, segments: Mapping[str, Any] | None
) -> tuple[float | Floats, int]:
    if entry is None:
        scores = checked(score)
        view.count_unmapped(scores.size)
        return scores.copy() if scores.ndim else float(scores), NO_MAP
    result: Any
    if entry.compiled is None:
        result = served(score, entry.apply, entry.apply_one)
    else:
        scores, compiled = checked(score), entry.compiled
        result = compiled.apply(scores, segments) if scores.ndim else compiled.apply_one(float(scores), segments)
    entry.tally(int(np.size(result)))
    return result, entry.version


def _applied(entry: Entry | None, segments: Mapping[str, Any] | None) -> Callable[[Floats], Floats] | None:
    if entry is None:
        return None
    return entry.apply if entry.compiled is None else partial(entry.compiled.apply, segments=segments)
