"""Turns the configuration into what the engine is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streamcal.detect.alarm import EceThreshold
from streamcal.detect.detector import DetectorSettings
from streamcal.detect.watch import WatchSettings
from streamcal.errors import MapDocumentError, StreamcalError
from streamcal.maps.compiled import SegmentTable, parse_key
from streamcal.maps.document import decode
from streamcal.maps.families import Map
from streamcal.maps.families import Prior as PriorMap
from streamcal.maps.loop import LoopSettings
from streamcal.runtime.config import Config
from streamcal.runtime.config_events import EventFilter as ConfiguredFilter
from streamcal.runtime.config_sections import Prior, Refit
from streamcal.runtime.value_formats import value_formats
from streamcal.settings import EngineSettings
from streamcal.stats.aggregate import AggregateSettings, WindowSpec
from streamcal.stream.fields import EventFilter, ModelFilter, OutcomeFields, PredictionFields
from streamcal.stream.join import ModelRules

__all__ = ["detector_settings", "engine_settings"]

_MAP_HISTORY = 1000
"""Entries of a daemon's map history per model: six weeks of hourly promotions, a megabyte."""


_DAY_MS = 86_400_000
_CLEAR_MS = 6 * 3_600_000
_CLEAR_PANES = 20
"""An alarm clears after calm panes over six hours, and at least twenty of them: a quiet night is no all-clear."""


@dataclass(frozen=True, slots=True)
class _DayZero:
    """The map in force before any label, and its entries per segment."""

    map_: Map
    segments: SegmentTable = field(default_factory=dict)


def engine_settings(
    config: Config,
    *,
    keep_everything: bool = False,
    period: Literal["day", "month"] | None = None,
    apply_maps: bool = False,
    shadow: bool = False,
    json_values: bool = False,
) -> EngineSettings:
    """What the engine needs of `config`.

    Parameters
    ----------
    config : Config
    keep_everything : bool
        Keep the window of everything per segment; for bounded input only.
    period : {"day", "month"} or None
        Also count by UTC calendar period.
    apply_maps : bool
        Serve raw scores again through the maps made on the way.
    shadow : bool
        Refit in shadow whatever the configuration says (unless it is off).
    json_values : bool
        Values are JSON whatever the configuration says, as in files of lines.

    Raises
    ------
    StreamcalError
        A prior map file cannot be read.
    RegistryError
        Values are in the wire format and no schema registry answers.
    """
    pane_ms = config.windows.pane.ms
    models = {name: config.model(name) for name in config.class_sets.counted(config.models)}
    priors = {
        name: _day_zero(settings.prior, settings.refit)
        for name, settings in models.items()
        if settings.prior is not None
    }

    def rules(name: str) -> ModelRules:
        model = config.model(name)
        return ModelRules(model.horizon_ms, model.labels == "positives_only")

    def loop(name: str) -> LoopSettings:
        model = config.model(name)
        mode = model.refit.mode
        return LoopSettings(
            mode="shadow" if shadow and mode == "auto" else mode,
            every_ms=model.refit.every.ms,
            fit_window_ms=model.refit.fit_window.ms,
            pane_ms=pane_ms,
            min_count=model.refit.min_count,
            maturity_ms=model.horizon_ms if model.labels == "positives_only" else 0,
            prior=priors[name].map_ if name in priors else None,
            history=None if keep_everything else _MAP_HISTORY,
            families=tuple(model.refit.families),
            dimensions=model.refit.segments,
            max_segments=config.segments.max_segments,
            prior_segments=priors[name].segments if name in priors else {},
            horizon_ms=model.horizon_ms,
            out_of_order_ms=config.join.out_of_order.ms,
        )

    def watch(name: str) -> WatchSettings:
        model = config.model(name)
        return WatchSettings(
            detector=detector_settings(config, name),
            pane_ms=pane_ms,
            horizon_ms=model.horizon_ms,
            change_triggers=model.alarms.change_triggers,
        )

    def ece_threshold(name: str) -> EceThreshold | None:
        ece = config.model(name).alarms.ece
        return None if ece is None else EceThreshold(ece.above, ece.min_n, ece.min_z)

    prediction = config.events.prediction.model_dump(exclude={"format"})
    outcome = config.events.outcome.model_dump(exclude={"filter", "format"})
    prediction_format, outcome_format = (None, None) if json_values else value_formats(config)
    return EngineSettings(
        dimensions=config.dimensions,
        cuts=config.cut_list,
        max_segments=config.segments.max_segments,
        prediction_fields=PredictionFields(**prediction),
        outcome_fields=OutcomeFields(**outcome, filter=_event_filter(config.events.outcome.filter)),
        model_filters=[
            ModelFilter(name, model.filter.path, model.filter.equals)
            for name, model in config.models.items()
            if model.filter is not None
        ],
        max_future_ms=config.join.max_future.ms,
        max_weight=config.events.max_weight,
        max_bytes=config.events.max_bytes,
        sample_rate=config.events.sample_rate,
        positives_only_topic=config.join.labels == "positives_only",
        skew_ms=config.join.skew.ms,
        out_of_order_ms=config.join.out_of_order.ms,
        aggregate=AggregateSettings(
            pane_ms=pane_ms,
            windows=[WindowSpec(str(length), length.ms // pane_ms) for length in config.windows.lengths],
            by_outcome_time=config.windows.time == "outcome",
            keep_everything=keep_everything,
            period=period,
        ),
        ece_bins=config.metrics.ece_bins,
        min_count=config.metrics.min_count,
        rules=rules,
        loop=loop,
        watch=watch,
        ece_threshold=ece_threshold,
        models=list(priors),
        apply_maps=apply_maps,
        prediction_format=prediction_format,
        outcome_format=outcome_format,
        classes=config.class_sets,
    )


def detector_settings(config: Config, name: str) -> DetectorSettings:
    """How the scores of a model are watched."""
    alarms, pane_ms = config.model(name).alarms, config.windows.pane.ms
    return DetectorSettings(
        panes_per_day=_DAY_MS // pane_ms,
        false_alarms_per_month=alarms.false_alarms_per_month,
        share=config.segments.max_segments if config.segments.cuts else 1,
        clear_after=max(_CLEAR_PANES, _CLEAR_MS // pane_ms),
        tolerance=alarms.tolerance_logit,
        dispersion=alarms.dispersion if isinstance(alarms.dispersion, float) else None,
    )


def _event_filter(configured: ConfiguredFilter | None) -> EventFilter | None:
    return None if configured is None else EventFilter(configured.path, configured.equals)


def _day_zero(prior: Prior, refit: Refit) -> _DayZero:
    if prior.negative_sampling_rate is not None:
        return _DayZero(PriorMap(negative_sampling_rate=prior.negative_sampling_rate))
    if prior.positive_weight is not None:
        return _DayZero(PriorMap(positive_weight=prior.positive_weight))
    path = prior.map_file
    assert path is not None
    try:
        document = decode(path.read_bytes())
        found = _DayZero(document.to_map(), document.segments)
    except MapDocumentError as error:
        raise MapDocumentError(
            error.what, where=str(path), hint="models.<name>.prior.map_file must be a map document"
        ) from error
    except OSError as error:
        raise StreamcalError(
            error.strerror or str(error), where=str(path), hint="check models.<name>.prior.map_file"
        ) from error
    levels = {refit.segments[: level + 1] for level in range(len(refit.segments))}
    others = {parse_key(key)[0] for key in found.segments} - levels
    if others and refit.mode != "off":
        by = " and ".join(f"[{', '.join(names)}]" for names in sorted(others))
        raise MapDocumentError(
            f"has entries by {by}, by which refit.segments corrects no map",
            where=str(path),
            hint="name the dimensions in refit.segments, the coarsest first, or leave the entries out of the document",
        )
    return found
