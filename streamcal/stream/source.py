"""One source: the same partition of both topics, decoded, joined, and told on.

What is read of a log is first *taken in* (decoded, with each record's own watermark), then *applied*. An intake holds
everything that is applied, so that intakes written down and applied again lead to the same state: the join is a
function of the two logs, however their records were batched and interleaved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.advances import Advances
from streamcal.stream.arrivals import Arrivals
from streamcal.stream.changes import RowChanges
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import TOPICS, Names, OutcomeBatch, PredictionBatch, Record, Rejection
from streamcal.stream.join import JoinTask
from streamcal.stream.rules import ModelRules
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import END, Watermark

__all__ = ["Intake", "Source", "SourceSettings", "Told"]

Ints = NDArray[np.int64]

_COLUMNS = {
    "predictions": ("id_hi", "id_lo", "time_ms", "raw", "served", "map_version", "model", "profile"),
    "outcomes": ("id_hi", "id_lo", "time_ms", "label", "model"),
}
_EMPTY: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What a source needs to know.

    Attributes
    ----------
    decoders : callable
        Makes the decoders of both topics for one `Names`.
    rules : callable
        Model name to its join rules.
    skew_ms, out_of_order_ms, pane_ms : int
    score_clip : float
    """

    decoders: Callable[[Names], tuple[PredictionDecoder, OutcomeDecoder]]
    dimensions: tuple[str, ...]
    rules: Callable[[str], ModelRules]
    skew_ms: int
    out_of_order_ms: int
    pane_ms: int
    score_clip: float


@dataclass(frozen=True, slots=True)
class Intake:
    """Consecutive records of one log as they are applied.

    Attributes
    ----------
    topic : {"predictions", "outcomes"}
    batch : PredictionBatch or OutcomeBatch or None
        Accepted rows; None for a recorded advance of an idle log.
    before : int64[n]
        The log's watermark just before each accepted row.
    reached : int
        Its watermark after all.
    next_offset : int or None
        Offset of the record to be read next; None where reading did not move.
    records, ignored, clipped : int
    rejected : mapping of str to int
        Events set aside, by reason.
    models, profiles : sequence
        Names first met in these records, in the order they were numbered.
    rejections : sequence of Rejection
        Places of what was set aside, for logs and dead letters; not written down.
    lost : int
        Records before `next_offset` that were gone before they were read, and given up by an operator.
    """

    topic: str
    batch: PredictionBatch | OutcomeBatch | None
    before: Ints
    reached: int
    next_offset: int | None
    records: int = 0
    ignored: int = 0
    clipped: int = 0
    rejected: dict[str, int] | None = None
    models: Sequence[str] = ()
    profiles: Sequence[tuple[str, ...]] = ()
    rejections: Sequence[Rejection] = ()
    lost: int = 0

    def to_tree(self) -> dict[str, Any]:
        """The intake as a tree of state."""
        tree: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("topic", "before", "reached", "next_offset", "records", "ignored", "clipped", "rejected")
        }
        tree["models"], tree["profiles"] = list(self.models), [list(values) for values in self.profiles]
        if self.lost:
            tree["lost"] = self.lost
        if self.batch is not None:
            tree["columns"] = {name: getattr(self.batch, name) for name in _COLUMNS[self.topic]}
            if isinstance(self.batch, PredictionBatch) and np.array_equal(self.batch.raw, self.batch.served):
                del tree["columns"]["served"]  # as most streams have it until a map is in force
            if isinstance(self.batch, PredictionBatch) and self.batch.weight is not None:
                tree["columns"]["weight"] = self.batch.weight
        return tree

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Intake:
        """Read what `to_tree` wrote."""
        held = dict(tree)
        columns = held.pop("columns", None)
        held["profiles"] = [tuple(values) for values in held["profiles"]]
        return cls(batch=None if columns is None else _batch(held["topic"], columns), **held)


@dataclass(frozen=True, slots=True)
class Told:
    """What applying intakes led to since it was last asked.

    Attributes
    ----------
    changes : sequence of RowChanges
    arrivals : Arrivals
    served : sequence of (model, time_ms, map_version) arrays
        Of predictions that were not late.
    """

    changes: Sequence[RowChanges]
    arrivals: Arrivals
    served: Sequence[tuple[NDArray[np.int32], Ints, Ints]]


class Source:
    """Joins one partition number; everything it knows is its own.

    Guarantee: the state is a function of what was read of both logs and of the recorded advances.

    Parameters
    ----------
    settings : SourceSettings

    Attributes
    ----------
    names : Names
    tally : Tally
    offsets : dict of str to int
        Offset of the record to be read next, by topic; a topic of which nothing was read is not there.
    begun : dict of str to int
        Where reading of each topic began.
    advances : Advances
    gaps : dict of str to (int, int)
        By topic: records that were given up, and the event time up to which they may have been, `END` until a record
        after them was read.
    """

    STATE = ("names", "tally", "offsets", "begun", "advances", "gaps", "_join", "_clocks", "_records")

    def __init__(self, settings: SourceSettings) -> None:
        self.names = Names(settings.dimensions)
        self.tally = Tally()
        self.offsets: dict[str, int] = {}
        self.begun: dict[str, int] = {}
        self.advances = Advances()
        self.gaps: dict[str, tuple[int, int]] = {}
        self._out_of_order_ms = settings.out_of_order_ms
        self._predictions, self._outcomes = settings.decoders(self.names)
        self._rules = settings.rules
        self._join = JoinTask(
            skew_ms=settings.skew_ms,
            pane_ms=settings.pane_ms,
            score_clip=settings.score_clip,
            rules=lambda model: settings.rules(self.names.models[model]),
            tally=self.tally,
        )
        self._clocks = {topic: Watermark(settings.out_of_order_ms) for topic in TOPICS}
        self._records: Counter[str] = Counter()
        self._served: list[tuple[NDArray[np.int32], Ints, Ints]] = []
        self._named = (0, 0)

    def state_child(self, _name: str, key: str) -> Watermark:
        """The clock of a topic."""
        return self._clocks[key]

    def state_loaded(self) -> None:
        """Know which names are written down already."""
        self._named = (len(self.names.models), len(self.names.profiles))

    def take_in(self, topic: str, records: Sequence[Record], next_offset: int) -> Intake:
        """Decode consecutive records of a log; to be applied before more of it is taken in."""
        clock = self._clocks[topic]
        batch = self._predictions.decode(records) if topic == "predictions" else self._outcomes.decode(records)
        place = np.searchsorted(batch.clock_row, batch.row, side="left")
        moves = len(batch.clock_ms) > 0
        return Intake(
            topic=topic,
            batch=batch,
            before=clock.before(batch.clock_ms)[place] if len(place) else _EMPTY,
            reached=int(clock.after(batch.clock_ms)[-1]) if moves else clock.value,
            next_offset=next_offset,
            records=len(records),
            ignored=batch.ignored,
            clipped=batch.clipped if isinstance(batch, PredictionBatch) else 0,
            rejected=dict(Counter(rejection.reason for rejection in batch.rejected)),
            rejections=batch.rejected,
            **self._new_names(),
        )

    def advance_in(self, topic: str, to_ms: int) -> Intake:
        """An advance of an idle log, to be applied and written down like records."""
        return Intake(topic, None, _EMPTY, max(to_ms, self._clocks[topic].value), None)

    def begin_in(self, topic: str, offset: int) -> Intake:
        """Where reading of a log begins, to be applied and written down like records."""
        return Intake(topic, None, _EMPTY, self._clocks[topic].value, offset)

    def give_up_in(self, topic: str, offset: int) -> Intake:
        """Going on at `offset` without the records before it, to be applied and written down like records."""
        lost = max(1, offset - self.offsets.get(topic, 0))
        return Intake(topic, None, _EMPTY, self._clocks[topic].value, offset, lost=lost)

    def apply(self, intake: Intake) -> None:
        """Join what was taken in, and release what the watermarks passed."""
        self._learn(intake)
        self._count(intake)
        self._note_reading(intake)
        batch, clock = intake.batch, self._clocks[intake.topic]
        if isinstance(batch, PredictionBatch):
            timely = intake.before <= batch.time_ms
            self._served.append((batch.model[timely], batch.time_ms[timely], batch.map_version[timely]))
            self._join.predictions(batch, intake.before)
        clock.advance(intake.reached)
        if isinstance(batch, OutcomeBatch):
            self._join.outcomes(batch, intake.before, self._clocks["predictions"].value)
        self._join.advance(*self.watermarks)
        if intake.next_offset is not None:
            self.offsets[intake.topic] = intake.next_offset

    def take(self) -> Told:
        """What came of it since the last call."""
        served, self._served = self._served, []
        return Told(self._join.take_changes(), self._join.take_arrivals(), served)

    @property
    def watermarks(self) -> tuple[int, int]:
        """Of predictions and of outcomes."""
        return self._clocks["predictions"].value, self._clocks["outcomes"].value

    @property
    def nbytes(self) -> int:
        """Bytes of everything the join remembers."""
        return self._join.nbytes

    @property
    def pending(self) -> int:
        """Predictions accepted and not yet released."""
        return self.tally.pending()

    def rules(self, model: int) -> ModelRules:
        """Join rules of a model index."""
        return self._rules(self.names.models[model])

    def _new_names(self) -> dict[str, Any]:
        models, profiles = self._named
        self._named = (len(self.names.models), len(self.names.profiles))
        return {"models": self.names.models[models:], "profiles": self.names.profiles[profiles:]}

    def _learn(self, intake: Intake) -> None:
        """Number the names of an intake that is applied again; of one just taken in they are known."""
        for name in intake.models:
            self.names.model(name)
        for values in intake.profiles:
            self.names.profile(values)
        self._named = (len(self.names.models), len(self.names.profiles))

    def _note_reading(self, intake: Intake) -> None:
        """What a recount has to know beside the logs: where reading began, advances, and what was given up."""
        topic, at = intake.topic, intake.next_offset
        if intake.lost:
            self.gaps[topic] = (intake.lost + self.gaps.get(topic, (0, 0))[0], END)
        elif intake.batch is not None:
            lost, until = self.gaps.get(topic, (0, 0))
            if until == END and len(intake.batch.time_ms):
                self.gaps[topic] = (lost, intake.reached + self._out_of_order_ms)
        elif at is not None:
            self.begun.setdefault(topic, at)
        elif intake.reached > self._clocks[topic].value:
            self.advances.add(topic, self.offsets.get(topic, 0), intake.reached)

    def _count(self, intake: Intake) -> None:
        self.tally.add("ignored", intake.ignored)
        self.tally.add("clipped", intake.clipped)
        self._records[intake.topic] += intake.records
        for reason, count in (intake.rejected or {}).items():
            self.tally.rejected[intake.topic, reason] += count


def _batch(topic: str, columns: dict[str, Any]) -> PredictionBatch | OutcomeBatch:
    """Accepted rows without their places in the slice, which nothing applied looks at."""
    rows = np.arange(len(columns["time_ms"]))
    common: dict[str, Any] = {"row": rows, "clock_row": _EMPTY, "clock_ms": _EMPTY, "rejected": (), "ignored": 0}
    if topic == "predictions":
        columns = {"weight": None, "served": columns["raw"]} | columns
        return PredictionBatch(**columns, **common, clipped=0)
    return OutcomeBatch(**columns, **common)
