"""What the engine is told: plain values, no file, environment or default in sight.

`streamcal.runtime.wiring` builds these from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcal.detect.alarm import EceThreshold
from streamcal.detect.watch import WatchSettings
from streamcal.maps.loop import LoopSettings
from streamcal.stats.aggregate import AggregateSettings
from streamcal.stream.classes import ClassSets
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import Names
from streamcal.stream.fields import ModelFilter, OutcomeFields, PredictionFields
from streamcal.stream.formats import ValueFormat
from streamcal.stream.join import ModelRules

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything the engine needs to know.

    Attributes
    ----------
    cuts : sequence of tuple of str
        The empty cut first.
    rules : callable
        Model name to its join rules.
    loop : callable
        Model name to its refit loop.
    watch : callable
        Model name to how its alarms are raised.
    ece_threshold : callable
        Model name to its plain threshold on served ECE, or None.
    models : sequence of str
        Models with a map of day 0: theirs is in force before any event.
    apply_maps : bool
        Serve raw scores again through the maps made on the way (replay).
    classes : ClassSets
        Models of several classes; everything by model name is asked for by the names of their classes' rows.
    prediction_format, outcome_format : ValueFormat or None
        Turn the values of a topic into JSON; None: they are JSON.
    """

    dimensions: tuple[str, ...]
    cuts: Sequence[tuple[str, ...]]
    max_segments: int
    prediction_fields: PredictionFields
    outcome_fields: OutcomeFields
    model_filters: Sequence[ModelFilter]
    max_future_ms: int
    max_weight: float
    max_bytes: int
    sample_rate: float
    positives_only_topic: bool
    skew_ms: int
    out_of_order_ms: int
    aggregate: AggregateSettings
    ece_bins: int
    min_count: int
    rules: Callable[[str], ModelRules]
    loop: Callable[[str], LoopSettings]
    watch: Callable[[str], WatchSettings]
    ece_threshold: Callable[[str], EceThreshold | None]
    models: Sequence[str] = ()
    apply_maps: bool = False
    prediction_format: ValueFormat | None = None
    outcome_format: ValueFormat | None = None
    classes: ClassSets = field(default_factory=ClassSets)

    def corrected(self, model: str) -> int | None:
        """Number of the cut by which the maps of a model are corrected, if they are."""
        dimensions = self.loop(model).corrected_by
        return self.cuts.index(dimensions) if dimensions else None

    @property
    def history_ms(self) -> int:
        """How long after the last event the longest window still shows anything."""
        return max(spec.panes for spec in self.aggregate.windows) * self.aggregate.pane_ms

    def decoders(self, names: Names) -> tuple[PredictionDecoder, OutcomeDecoder]:
        """Decoders of both topics that intern models and segment profiles in `names`."""
        shared: dict[str, Any] = {
            "max_future_ms": self.max_future_ms,
            "max_weight": self.max_weight,
            "sample_rate": self.sample_rate,
            "max_bytes": self.max_bytes,
            "classes": self.classes,
        }
        predictions = PredictionDecoder(
            self.prediction_fields,
            names,
            model_filters=self.model_filters,
            value_format=self.prediction_format,
            **shared,
        )
        outcomes = OutcomeDecoder(
            self.outcome_fields,
            names,
            default_label_positive=self.positives_only_topic,
            value_format=self.outcome_format,
            **shared,
        )
        return predictions, outcomes
