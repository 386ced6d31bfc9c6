"""Early signs of all models: what the join tells goes in, what readers see comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.early.cohorts import BANDS, CohortCounts, CohortLayout, Cohorts
from streamcal.early.delays import delay_quantile
from streamcal.early.estimate import early_estimate
from streamcal.early.shift_panes import ShiftPanes
from streamcal.snapshot import EarlyEstimate, LabelState, ScoreShift, Series, UnmatchedBand
from streamcal.stats.aggregate_settings import WindowSpec
from streamcal.stats.series import SeriesTable
from streamcal.stream.arrivals import Accepted, Arrivals, Columns, LabelChanges, concatenate, taken
from streamcal.stream.events import Names
from streamcal.stream.rules import ModelRules

Ints = NDArray[np.int64]

__all__ = ["QUANTILES", "EarlySigns"]

QUANTILES = (0.5, 0.9, 0.99)


class EarlySigns:
    """Cohorts per model, and score windows per series.

    Guarantee: what it says is a function of how far both logs have been read.

    Parameters
    ----------
    names : Names
    cuts : sequence of tuple of str
    max_segments, pane_ms : int
    windows : sequence of WindowSpec
    rules : callable
        Model index to its join rules.
    min_count : int
        Matured labels (of one class, for the estimate) below which nothing is said.
    """

    STATE = ("_cohorts", "_shift")

    def __init__(
        self,
        names: Names,
        cuts: Sequence[tuple[str, ...]],
        max_segments: int,
        pane_ms: int,
        windows: Sequence[WindowSpec],
        rules: Callable[[int], ModelRules],
        min_count: int,
    ) -> None:
        self._pane_ms = pane_ms
        self._window = max(spec.panes for spec in windows)
        self._rules = rules
        self._min_count = min_count
        self._cohorts: dict[int, Cohorts] = {}
        self._shift = ShiftPanes(names, cuts, max_segments, pane_ms, windows)

    def state_child(self, _name: str, key: int) -> Cohorts:
        """The cohorts of a model index."""
        return self.of_model(key)

    @property
    def nbytes(self) -> int:
        """Bytes of all counts."""
        return self._shift.nbytes + sum(cohorts.nbytes for cohorts in self._cohorts.values())

    def fold(self, arrivals: Iterable[Arrivals]) -> None:
        """Count what came."""
        accepted, labels = _joined(arrivals)
        if accepted is not None:
            self._shift.fold(accepted)
        self._count(accepted, labels, 1)

    @property
    def score_series(self) -> SeriesTable:
        """Numbers of the series in the score windows."""
        return self._shift.series

    def add_cohorts(self, model: int, cohort: Ints, code: Ints, values: Ints) -> None:
        """Count cells of cohorts, shape (n,) each."""
        self.of_model(model).add(cohort, code, values)

    def add_scores(self, slot: Ints, code: Ints, rows: Ints) -> None:
        """Count cells of slots by the numbers of `score_series`, shape (n,) each."""
        self._shift.add(slot, code, rows)

    def kept_from(self, model: int) -> tuple[int, int]:
        """First cohort and first slot that are still of use."""
        return self.of_model(model).kept_from, self._shift.kept_from

    def withdraw(self, arrivals: Arrivals) -> None:
        """Take out predictions whose labels will be known elsewhere; scores seen were seen."""
        self._count(*_joined([arrivals]), -1)

    def advance(self, predictions_ms: int) -> None:
        """Let score windows end with the event time of the predictions."""
        self._shift.advance(predictions_ms)

    def mature(self, model: int, sealed_ms: int, event_time_ms: int) -> None:
        """All predictions of a model made before `sealed_ms` are final."""
        if sealed_ms > 0:
            self.of_model(model).mature(sealed_ms, event_time_ms)

    def of_model(self, model: int) -> Cohorts:
        """The cohorts of a model index."""
        cohorts = self._cohorts.get(model)
        if cohorts is None:
            layout = CohortLayout.over_panes(self._rules(model).horizon_ms, self._pane_ms, self._window)
            cohorts = self._cohorts[model] = Cohorts(layout)
        return cohorts

    def labels(self, model: int) -> LabelState | None:
        """How labels came in the matured cohorts of the longest window; None without any."""
        cohorts = self.of_model(model)
        matured = cohorts.matured()
        accepted = int(matured.accepted.sum())
        if not accepted:
            return None
        coverage = 1.0 if self._rules(model).positives_only else int(matured.labelled.sum()) / accepted
        return LabelState(coverage, self._delays(matured, cohorts), _unmatched(matured))

    def early(self, model: int, outcomes_ms: int, phi: float) -> EarlyEstimate | None:
        """The estimate of cohorts that have not matured, `outcomes_ms` being the event time of the outcomes."""
        cohorts = self.of_model(model)
        ends, fresh = cohorts.fresh()
        return early_estimate(
            cohorts.matured(),
            fresh,
            outcomes_ms - ends,
            cohorts.edges,
            min_count=self._min_count,
            complete=self._rules(model).positives_only,
            phi=phi,
        )

    def shifts(self) -> dict[int, dict[tuple[Series, str], ScoreShift]]:
        """Per model index, the shift of scores by series and window."""
        return self._shift.shifts()

    def _count(self, accepted: Accepted | None, labels: LabelChanges | None, sign: int) -> None:
        for model, part in _by_model(accepted):
            self.of_model(model).accept(part, sign)
        for model, changes in _by_model(labels):
            self.of_model(model).label(changes)

    def _delays(self, matured: CohortCounts, cohorts: Cohorts) -> Mapping[float, float]:
        counts = matured.positives + matured.negatives
        if int(counts.sum()) < self._min_count:
            return {}
        return {share: delay_quantile(counts, cohorts.edges, share) / 1000 for share in QUANTILES}


def _unmatched(matured: CohortCounts) -> Sequence[UnmatchedBand]:
    return [
        UnmatchedBand(band / BANDS, (band + 1) / BANDS, 1 - labelled / accepted)
        for band, (accepted, labelled) in enumerate(
            zip(matured.accepted.tolist(), matured.labelled.tolist(), strict=True)
        )
        if accepted
    ]


def _joined(arrivals: Iterable[Arrivals]) -> tuple[Accepted | None, LabelChanges | None]:
    held = list(arrivals)
    accepted = [part for some in held for part in some.accepted]
    labels = [part for some in held for part in some.labels]
    return (concatenate(accepted) if accepted else None), (concatenate(labels) if labels else None)


def _by_model(columns: Columns | None) -> Iterable[tuple[int, Columns]]:
    """(model index, its rows)."""
    if columns is None or not len(columns):
        return
    first = int(columns.model[0])
    if (columns.model == first).all():
        yield first, columns
        return
    for model in np.unique(columns.model).tolist():
        yield model, taken(columns, np.flatnonzero(columns.model == model))
