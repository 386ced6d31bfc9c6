"""The background thread of a transformer: takes what its source says, keeps the cache, notices silence.

What callers read is one `View`, replaced as a whole. Silence is the time since the source last answered, not the age
of a map: a model that stays calibrated keeps one map for months. It is looked at between polls, so that a source that
blocks (one that waits for a broker does so for seconds) is noticed that much later.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from streamcal.transform.source import MapSource, MapUpdate
from streamcal.transform.status import PROBLEMS, UNMAPPED, Problem, TransformerStatus
from streamcal.transform.table import Entry, MapTable
from streamcal.transform.tally import Tally

if TYPE_CHECKING:  # loaded where a cache is asked for
    from streamcal.transform.cache import MapCache

__all__ = ["Following", "StaleRule", "View"]

_POLL_S: Final = 0.5
"""Longest wait inside one poll of the source: bounds how old a file's map can be and how long `close` takes."""
_RETRY_S: Final = 1.0
"""Pause after the source failed: long enough not to spin, short against the seconds in which a map should spread."""
_NOTE_S: Final = 10.0
"""How often the cache notes that the source answered: a hundredth of any silence worth a reaction."""


class StaleRule(NamedTuple):
    """Seconds of silence after which maps are stale (None: never), and whether they are then set aside."""

    after_s: float | None
    set_aside: bool


class View(NamedTuple):
    """What callers read: the maps to apply, and what counts a score that has none."""

    entries: Mapping[str, Entry]
    count_unmapped: Callable[[int], None]


class Following:
    """Follows one source until `close`.

    Attributes
    ----------
    view : View
        Replaced and never altered.

    Parameters
    ----------
    source : MapSource
    table : MapTable
    cache : MapCache or None
    rule : StaleRule
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self, source: MapSource, table: MapTable, cache: MapCache | None, rule: StaleRule, clock: Callable[[], float]
    ) -> None:
        self._source, self._table, self._cache, self._rule, self._clock = source, table, cache, rule, clock
        self._changed = threading.Condition()  # guards the three below; nothing on the path of a score takes it
        self._problems: Counter[str] = Counter()
        self._last_problem = ""
        self._caught_up = False
        self._unmapped = {reason: Tally() for reason in UNMAPPED}
        self._stop = threading.Event()
        self._heard_s = clock()
        self._noted_s = 0.0
        self.view = View({}, self._unmapped["no_map"].add)
        if cache is not None:
            self._read_cache(cache)
        self._follow_once(0.0)
        self._thread = threading.Thread(target=self._follow, name="streamcal-maps", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; maps in force stay in force. May be called twice."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._source.interrupt()
        self._thread.join()
        self._source.close()

    def status(self) -> TransformerStatus:
        """Everything about it at one moment."""
        now_s = self._clock()
        unmapped = {reason: tally.value for reason, tally in self._unmapped.items()}
        with self._changed:
            return TransformerStatus(
                maps={model: entry.status for model, entry in self._table.entries.items()},
                problems=dict(self._problems),
                last_problem=self._last_problem,
                scores={model: tally.value for model, tally in dict(self._table.served).items()},
                unmapped=sum(unmapped.values()),
                unmapped_by=unmapped,
                following=self._thread.is_alive(),
                caught_up=self._caught_up,
                stale=self._stale(now_s),
                silent_s=max(0.0, now_s - self._heard_s),
                at_s=now_s,
            )

    def wait_until(self, met: Callable[[TransformerStatus], bool], timeout_s: float | None) -> bool:
        """See `CalibrationTransformer.wait_until`."""
        with self._changed:
            return self._changed.wait_for(lambda: met(self.status()), timeout_s)

    # -- the background thread --------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._follow_once(_POLL_S)

    def _follow_once(self, timeout_s: float) -> None:
        try:
            updates = self._source.poll(timeout_s)
            caught_up = self._source.caught_up
        except Exception as error:  # noqa: BLE001 -- whatever a source fails with, the last good maps stay in force
            self._count(Problem("source", f"{type(error).__name__}: {error}"))
            self._show(answered=False, caught_up=False)
            self._stop.wait(_RETRY_S if timeout_s else 0.0)
            return
        kept: dict[str, bytes | None] = {}
        for update in updates:
            taken = self._table.take(update)
            if taken.problem is not None:
                self._count(taken.problem)
            elif taken.model is not None:
                kept[taken.model] = taken.data
        self._show(answered=True, caught_up=caught_up)
        if self._cache is not None:
            self._keep(self._cache, kept)

    def _show(self, *, answered: bool, caught_up: bool) -> None:
        now_s = self._clock()
        if answered:
            self._heard_s = now_s
        entries = self._table.entries
        if entries and self._rule.set_aside and self._stale(now_s):
            self.view = View({}, self._unmapped["stale"].add)
        else:
            self.view = View(entries, self._unmapped["unknown_model" if entries else "no_map"].add)
        with self._changed:
            self._caught_up = self._caught_up or caught_up
            self._changed.notify_all()

    def _stale(self, now_s: float) -> bool:
        return self._rule.after_s is not None and now_s - self._heard_s > self._rule.after_s

    def _count(self, problem: Problem) -> None:
        assert problem.reason in PROBLEMS
        with self._changed:
            self._problems[problem.reason] += 1
            self._last_problem = problem.text

    # -- the cache --------------------------------------------------------------------------------------------

    def _read_cache(self, cache: MapCache) -> None:
        for file in cache.read(self._clock()):
            problem: Problem | None = Problem("cache", file.error)
            if not file.error:
                problem = self._table.take(MapUpdate(None, file.data), cached=True).problem
            if problem is not None:
                self._count(Problem(problem.reason, f"cached file {file.path}: {problem.text}"))
        # Without a note of it, nothing was ever heard: the maps of unknown age are as stale as can be.
        heard_s = cache.heard_s()
        if self._table.entries:
            self._heard_s = 0.0 if heard_s is None else min(heard_s, self._heard_s)

    def _keep(self, cache: MapCache, kept: Mapping[str, bytes | None]) -> None:
        """Write what one poll has changed, once for each model; then that the source has answered."""
        try:
            for model, data in kept.items():
                if data is None:
                    cache.remove(model)
                else:
                    cache.put(model, data)
            if kept or abs(self._heard_s - self._noted_s) >= _NOTE_S:
                cache.heard(self._heard_s)
                self._noted_s = self._heard_s
        except OSError as error:
            self._count(Problem("cache", f"{cache.directory}: {error.strerror or error}"))
