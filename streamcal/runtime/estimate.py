"""What a configuration will cost before it runs: exported series and bytes of state, from a rate of predictions.

Theory of operation
-------------------
The numbers are upper estimates for sizing, not accounting; the running daemon exports what it really holds.
Assumed is that

- predictions come evenly in time, evenly over the segments of a cut, and evenly over the bins between the logits -6
  and 6, that is scores from .0025 to .9975 (a peaked score fills fewer cells, a more extreme one more);
- every prediction gets a label, and weights are 1; one of several classes is a row per class, and models take turns;
- a prediction is remembered for twice its horizon, plus `out_of_order`, at full size, although what remains after the
  first horizon is a smaller mark; outcomes are remembered inside it;
- a segment value never seen costs nothing: the number of segments is what the caller says, at most `max_segments` and
  the one that holds the rest;
- sparse cells are kept for prediction time and for outcome time, for raw and for served scores: over the longest window
  for every series, and beyond it, as far as fits look back, for the uncut stream's raw scores;
- every figure of the export is known everywhere; a figure that cannot be known is left out, so fewer are exported.

Memory of the interpreter and its libraries, of Kafka buffers and of the rendered page comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streamcal.early.cohorts import BANDS, cohort_panes
from streamcal.early.shift_panes import slot_panes
from streamcal.runtime.config import DEFAULT_MODEL, Config
from streamcal.serve.metrics import BIN_FIGURES, ExportSettings

__all__ = ["CELL_BYTES", "REMEMBERED_BYTES", "WINDOW_BYTES", "Estimate", "Load", "estimate"]

BINS: Final = 284
COLUMNS: Final = 9
"""Sums per bin of an unweighted stream."""

REACHED_BINS: Final = 96 + 28
"""Bins between the logits -6 and 6: an eighth wide, and cut further by the edges k/20 and k/15 that are not logits."""

REMEMBERED_BYTES: Final = 160
"""One remembered prediction, its share of the index and its outcome included."""

CELL_BYTES: Final = 80
"""One bin of one pane, series and score kind: nine sums and its place."""

WINDOW_BYTES: Final = BINS * COLUMNS * 8
"""The dense totals of one window, series and score kind."""

COUNT_BYTES: Final = 16
"""One number of early signs and its place."""

BAND_SUMS: Final = 4
"""Numbers of one of a cohort's ten score bands."""

DELAYS: Final = 2 * 5 * 8
"""Delay buckets of both classes that fill: five octaves hold all but a thirtieth of evenly spread delays."""

SCORE_KINDS: Final = 2
PANE_FAMILIES: Final = 2


@dataclass(frozen=True, slots=True)
class Load:
    """What the streams will carry, all models and partitions together.

    Parameters
    ----------
    predictions_per_second : float
        > 0; before `events.sample_rate` thins them.
    segments : int or mapping of cut to int
        Segments with traffic in each cut; a mapping gives the number per cut (cuts left out: `max_segments`).
    models : int
        Models that share the predictions evenly; at least those named in `models`.

    Raises
    ------
    ValueError
        A number is out of its range.
    """

    predictions_per_second: float
    segments: int | Mapping[tuple[str, ...], int] = field(default_factory=dict)
    models: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.predictions_per_second < math.inf:
            raise ValueError(f"predictions_per_second is {self.predictions_per_second}, must be above 0")
        counts = self.segments.values() if isinstance(self.segments, Mapping) else (self.segments,)
        if any(count < 1 for count in counts) or self.models < 1:
            raise ValueError("segments and models must be at least 1")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a configuration under a load.

    Attributes
    ----------
    figure_series : int
        Prometheus series of figures, before the cap.
    max_series : int
        The cap, `metrics.max_series`.
    remembered : int
        Predictions in the join.
    join_bytes, pane_bytes, window_bytes, early_bytes : int
        The last is what early signs keep: cohorts, and scores by slot and window.
    """

    figure_series: int
    max_series: int
    remembered: int
    join_bytes: int
    pane_bytes: int
    window_bytes: int
    early_bytes: int

    @property
    def exported_series(self) -> int:
        """Series of figures that are exported."""
        return min(self.figure_series, self.max_series)

    @property
    def state_bytes(self) -> int:
        """All state together."""
        return self.join_bytes + self.pane_bytes + self.window_bytes + self.early_bytes


def estimate(config: Config, load: Load) -> Estimate:
    """Estimate series and state bytes of `config` under `load`; see the module for what is assumed."""
    named = [name for name in config.models if config.class_sets.parent(name) is None]
    scored = max(load.models, len(named), 1)
    # Each class is counted as a model; models not named have the usual ones.
    usual = max(len(config.class_sets.usual), 1)
    models = len(config.class_sets.counted(named)) + (scored - len(named)) * usual
    # A prediction is one row per class; the models take turns.
    per_ms = load.predictions_per_second * config.events.sample_rate / 1000 * models / scored
    segments = [_segments(config, load, cut) for cut in config.cut_list]
    series = models * sum(segments)
    remembered = math.ceil(per_ms * (2 * config.longest_horizon_ms + config.join.out_of_order.ms))
    return Estimate(
        figure_series=_figure_series(config, models, series),
        max_series=config.metrics.max_series,
        remembered=remembered,
        join_bytes=remembered * REMEMBERED_BYTES,
        pane_bytes=math.ceil(_cells(config, per_ms / models, segments) * models) * CELL_BYTES,
        window_bytes=series * len(config.windows.lengths) * SCORE_KINDS * WINDOW_BYTES,
        early_bytes=math.ceil(models * _early_bytes(config, per_ms / models, segments)),
    )


def _segments(config: Config, load: Load, cut: tuple[str, ...]) -> int:
    if not cut:
        return 1
    cap = config.segments.max_segments
    said = load.segments.get(cut, cap) if isinstance(load.segments, Mapping) else load.segments
    return min(said, cap + 1)


def _figure_series(config: Config, models: int, series: int) -> int:
    exported = ExportSettings(config.metrics.export)
    of_bins = models * config.metrics.ece_bins * len(BIN_FIGURES) if exported.bins else 0
    return (series * len(exported.figures) + of_bins) * len(config.windows.lengths) * SCORE_KINDS


def _cells(config: Config, per_ms: float, segments: list[int]) -> float:
    """Cells of one model with `per_ms` predictions and `segments` per cut."""
    pane = config.windows.pane.ms
    longest = max(length.ms for length in config.windows.lengths)
    look_back = max(config.model(name).refit.fit_window.ms for name in (DEFAULT_MODEL, *config.models))
    per_pane = sum(count * _occupied(per_ms * pane / count) for count in segments)
    windows = longest / pane * per_pane * PANE_FAMILIES * SCORE_KINDS
    fits = max(0, look_back - longest) / pane * _occupied(per_ms * pane) * PANE_FAMILIES
    return windows + fits


def _early_bytes(config: Config, per_ms: float, segments: list[int]) -> float:
    """Bytes of the early signs of one model with `per_ms` predictions and `segments` per cut."""
    pane = config.windows.pane.ms
    lengths = sorted(length.ms // pane for length in config.windows.lengths)
    slot = slot_panes(lengths)
    per_slot = sum(count * _occupied(per_ms * pane * slot / count) for count in segments)
    slots = (lengths[-1] + lengths[-2]) // slot if len(lengths) > 1 else 0
    dense = sum(segments) * (len(lengths) - 1) * 2 * BINS * 8
    horizon = config.longest_horizon_ms // pane
    cohort = cohort_panes(max(horizon, lengths[-1]))
    rows = per_ms * pane * cohort
    cells = BAND_SUMS * min(BANDS, rows) + min(DELAYS, rows)
    return slots * per_slot * COUNT_BYTES + dense + (horizon + lengths[-1]) / cohort * cells * COUNT_BYTES


def _occupied(rows: float) -> float:
    """Expected bins with a row among `rows` thrown evenly into those reached.

    >>> round(_occupied(1.0), 6), round(_occupied(1e6), 6)
    (1.0, 124.0)
    """
    return REACHED_BINS * -math.expm1(rows * math.log1p(-1 / REACHED_BINS))
