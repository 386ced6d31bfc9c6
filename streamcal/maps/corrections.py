"""Corrections per segment beside the map in force: learned always, served once they have earned it.

The whole model comes first: which family is in force is decided as if there were no segments (`policy`). Beside it, for
every family that might be in force, each segment's gap to what that family's newest fit serves is followed
(`segment_fits`); its memory fades by half in as long as makes it as old on average as the rows of the fit window. What
is learned never depends on what is in force, so a table replaces the one before and is not put on top of it. Only maps
that the loop did not fit (raw scores, day 0, one a person brought back) are followed from when they come into force.

A table is judged as families are: rows are told apart by segment and by step of prediction, and the log loss with the
table that stood when they were predicted is compared with that without. From ln(20 x challengers) nats on, and more
than a standard error over blocks, the table is put in the document; then it *publishes* as it moves. From then on the
same sum is kept for the map without it, and at phi x ln 20 nats for that the table is taken back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.compiled import CompiledMap, SegmentTable, parse_key
from streamcal.maps.evidence import Evidence
from streamcal.maps.families import Identity, Map, same_map
from streamcal.maps.guards import LARGEST_STEP
from streamcal.maps.judged import Generations, log_loss, spacing_ms, weighed, weighs
from streamcal.maps.levels import Key
from streamcal.maps.link import logit, sigmoid
from streamcal.maps.segment_fits import Lines, SegmentFits
from streamcal.state.trees import dump_fields, load_fields
from streamcal.stats.segment_panes import SegmentsEntered

__all__ = ["FOREIGN", "CorrectionSettings", "Corrections"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FOREIGN: Final = ""
"""Reference of a map in force that is not the loop's own fit."""

SMALLEST_MOVE: Final = 0.02
"""Logits by which some segment's correction must have moved to be published: a fifth of the tolerance of alarms."""

NEGLIGIBLE: Final = 0.002
"""Logits up to which a segment does without an entry of its own: .2 % of its odds."""

_NAME: Final = "segments"


@dataclass(frozen=True, slots=True)
class CorrectionSettings:
    """What corrections are told.

    Attributes
    ----------
    dimensions : tuple of str
        Of the finest segments; each prefix is a level above.
    every_ms, fit_window_ms, memory_ms, step_ms : int
        Between attempts; of the fit window; how long after its prediction a label may become known; of a step of
        prediction time.
    bar : float
        Nats to be gained.
    most : int
        Segments that are followed.
    """

    dimensions: tuple[str, ...]
    every_ms: int
    fit_window_ms: int
    memory_ms: int
    step_ms: int
    bar: float
    most: int

    @property
    def half_life_ms(self) -> float:
        """Fading by half in this time, rows are as old on average as those of the fit window: half its length."""
        return float(self.fit_window_ms * np.log(2.0) / 2.0)


class Corrections:
    """Tables of one model, and whether they are in force.

    Parameters
    ----------
    settings : CorrectionSettings

    Attributes
    ----------
    active : bool
        Whether the table is in force.
    since_ms : int
        When that last changed.
    evidence : Evidence
        For the table while it is not in force, for the map without it while it is.
    own : SegmentTable
        Entries that came with the map in force and were not made here; they are what a table has to better.
    former : tuple of str and SegmentTable
        Reference and own entries of the map that was in force before.
    loaded : bool
        Whether it goes on from a state; False where that was written without these corrections.
    """

    _STATE = ("active", "since_ms", "evidence", "own", "former", "_fits", "_from_ms", "_reference", "_foreign")

    def __init__(self, settings: CorrectionSettings) -> None:
        self.settings = settings
        self.active = False
        self.since_ms = 0
        self.evidence = Evidence((_NAME,), settings.every_ms, settings.fit_window_ms, settings.bar)
        self.own: SegmentTable = {}
        self.former: tuple[str, SegmentTable] = (FOREIGN, {})
        self._fits = SegmentFits(settings.dimensions, settings.half_life_ms, settings.most)
        self._from_ms: list[int] = []
        self._reference = FOREIGN
        self._foreign: Map = Identity()
        self.loaded = False

    def dump_state(self) -> dict[str, Any]:
        """All of it, and by which dimensions."""
        return {"dimensions": list(self.settings.dimensions), "rest": dump_fields(self, self._STATE)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote; corrections by other dimensions, since configured away, are left out."""
        self.loaded = tuple(state["dimensions"]) == self.settings.dimensions
        if self.loaded:
            load_fields(self, self._STATE, state["rest"])

    # --- what is in force -----------------------------------------------------------------------------------------

    def follow(self, reference: str | None, map_: Map, own: SegmentTable, moment_ms: int) -> None:
        """Another map is in force from `moment_ms` on.

        Parameters
        ----------
        reference : str or None
            The family whose newest fit it is, or `FOREIGN`; None where it was not the loop that put it there: then it
            stands as it is until a table has earned its place anew. A family that replaces a map with entries of its
            own brings its table: what had entries goes on having some.
        map_ : Map
        own : SegmentTable
            Entries of its document, which are not looked at while a table is in force.
        moment_ms : int
        """
        if reference is None:
            self.active, self.since_ms = False, moment_ms
        elif reference != FOREIGN and self.own:
            self.active, self.since_ms = True, moment_ms
        self.former = (self._reference, self.own)
        self._reference, self.own = reference or FOREIGN, {} if self.active else own
        if self._reference == FOREIGN and not self.is_followed(map_):
            self._foreign = map_
            self._fits.forget(FOREIGN)
            self.active, self.since_ms, self.own = False, moment_ms, own
        self.evidence.restart()
        self._put(self._fits.newest(self._reference), moment_ms)

    def is_followed(self, map_: Map) -> bool:
        """Whether gaps of segments to this map of another origin are known."""
        return same_map(map_, self._foreign)

    def judged_of(self, table: SegmentTable) -> SegmentTable:
        """The table, if its entries are by the dimensions that are corrected here; none of it else."""
        levels = {self.settings.dimensions[: level + 1] for level in range(len(self.settings.dimensions))}
        return table if all(parse_key(key)[0] in levels for key in table) else {}

    def turn(self, moment_ms: int, *, on: bool) -> None:
        """Put the newest table in force, or take it back."""
        self.active, self.since_ms, self.own = on, moment_ms, {}
        self.evidence.restart()
        self._put(self._fits.newest(self._reference), moment_ms)

    def note(self, moment_ms: int) -> None:
        """While it is not in force, the newest table is what could be from `moment_ms` on."""
        if not self.active and self._is_due(moment_ms):
            self._put(self._fits.newest(self._reference), moment_ms)

    def publish(self, moment_ms: int) -> bool:
        """Let the table in force be the newest one, if it moved enough; an entry moves by 1.5 logits at most."""
        if not self.active or not self._is_due(moment_ms):
            return False
        held, newest = self._fits.tables[-1], self._fits.newest(self._reference)
        moves = [new - old for new, old in zip(newest.intercepts, held.intercepts, strict=True)]
        if max((float(np.abs(move).max(initial=0.0)) for move in moves), default=0.0) < SMALLEST_MOVE:
            return False
        levels = list(zip(held.intercepts, held.slopes, moves, newest.slopes, strict=True))
        intercepts = (old + np.clip(move, -LARGEST_STEP, LARGEST_STEP) for old, _, move, _ in levels)
        slopes = (np.where(np.abs(move) > LARGEST_STEP, old, new) for _, old, move, new in levels)
        self._put(Lines(tuple(intercepts), tuple(slopes)), moment_ms)
        return True

    def table(self) -> SegmentTable:
        """Entries for a document of the map in force: of the table, or those that came with it."""
        return self._entries(self._fits.tables[-1]) if self.active else self.own

    @property
    def wanted(self) -> bool:
        """Whether a family that is promoted now brings its table."""
        return self.active or bool(self.own)

    def newest(self, reference: str) -> SegmentTable:
        """Entries of the newest table for a family's newest fit, or for the map in force of reference `FOREIGN`."""
        return self._entries(self._fits.newest(reference))

    # --- what is learned ------------------------------------------------------------------------------------------

    def judge(self, entered: SegmentsEntered, served: Generations, since_ms: int, moment_ms: int) -> None:
        """Add up what rows say of the table, predicted since `since_ms` when `served` was in force without it."""
        held = weighs(entered.values)
        segment = entered.segment[held]
        predicted_ms = entered.step[held] * self.settings.step_ms
        rows = weighed(predicted_ms, entered.bins[held], entered.values[held], segment)
        since_ms = max(since_ms, self.since_ms)
        segment = segment[np.searchsorted(predicted_ms, since_ms) :]
        rows = rows.since(since_ms)
        place = np.searchsorted(np.array(self._from_ms, dtype=np.int64), rows.predicted_ms, side="right") - 1
        z = np.asarray(logit(served.served(rows)))
        corrected = np.full(len(rows), np.nan)
        for number in np.unique(place[place >= 0]).tolist():
            intercept, slope = self._fits.of_segments(self._fits.tables[number], entered.keys)
            mine = place == number
            corrected[mine] = z[mine] * (1.0 + slope[segment[mine]]) + intercept[segment[mine]]
        intercept, slope = self._own_lines(served, entered.keys)
        without = log_loss(rows, sigmoid(z * slope[segment] + intercept[segment]))
        gain = without - log_loss(rows, sigmoid(corrected))
        known = ~np.isnan(gain)
        if known.any():
            total = float(gain[known].sum()) * (-1.0 if self.active else 1.0)
            self.evidence.add(moment_ms, {_NAME: total}, int(rows.n[known].sum()), int(rows.positives[known].sum()))

    def learn(self, entered: SegmentsEntered, maps: Mapping[str, Map], moment_ms: int) -> None:
        """Follow the gaps of segments to what `maps` serve, by family, and to a map in force of another origin."""
        self._fits.learn(entered, {**maps, FOREIGN: self._foreign}, moment_ms)

    @property
    def sufficient(self) -> bool:
        """Whether the table has earned its place, by the rule of families."""
        return not self.active and self.evidence.suffices(_NAME)

    @property
    def against(self) -> float:
        """Nats that the map without the table in force would have saved lately; 0 while it is not in force."""
        return self.evidence.gain_of(_NAME) if self.active else 0.0

    def told(self) -> dict[str, float]:
        """The evidence, for the document that comes of it."""
        gain, error = self.evidence.recent(_NAME)
        told = {"gain_segments": self.evidence.gain_of(_NAME), "bar": self.evidence.bar, "recent_gain": gain}
        told |= {"holdout_n": float(self.evidence.n), "holdout_positives": float(self.evidence.positives)}
        return told | ({"recent_gain_se": error} if np.isfinite(error) else {})

    # --- details --------------------------------------------------------------------------------------------------

    def _entries(self, table: Lines) -> SegmentTable:
        return self._fits.levels.entries(*table, negligible=NEGLIGIBLE)

    def _is_due(self, moment_ms: int) -> bool:
        spacing = spacing_ms(self.settings.memory_ms, self.settings.every_ms)
        return not self._from_ms or moment_ms // spacing != self._from_ms[-1] // spacing

    def _put(self, table: Lines, moment_ms: int) -> None:
        tables = self._fits.tables
        if self._from_ms and self._from_ms[-1] == moment_ms:
            tables[-1] = table
        else:
            self._from_ms.append(moment_ms)
            tables.append(table)
        gone = max(bisect_right(self._from_ms, moment_ms - self.settings.memory_ms) - 1, 0)
        del self._from_ms[:gone], tables[:gone]

    def _own_lines(self, served: Generations, keys: Sequence[Key]) -> tuple[Floats, Floats]:
        """Intercept and slope that the entries of the map itself give each segment."""
        intercept, slope = np.zeros(len(keys)), np.ones(len(keys))
        if self.own and served.newest is not None:
            compiled = CompiledMap(served.newest, self.own)
            for number, key in enumerate(keys):
                slope[number], intercept[number] = compiled.line(dict(zip(self.settings.dimensions, key, strict=True)))
        return intercept, slope
