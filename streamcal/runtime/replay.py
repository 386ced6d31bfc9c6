"""`streamcal replay`: the same engine over recorded events, and a report of all it saw and did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamcal import __version__
from streamcal.detect.watch import AlarmRecord
from streamcal.engine import Engine
from streamcal.runtime.config import Config
from streamcal.runtime.history import HistoryRecorder
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.logs.files import EventsFile, FilePair, FilesLog
from streamcal.runtime.logs.lines import count_lines, file_sha256
from streamcal.runtime.loop import Runtime
from streamcal.runtime.wiring import engine_settings
from streamcal.serve.report import ModelReport, ReplayResult, figure_dict
from streamcal.serve.table import Progress
from streamcal.settings import EngineSettings
from streamcal.snapshot import WindowFigures
from streamcal.stats.aggregate import EVERYTHING
from streamcal.stats.cells import RAW, SERVED
from streamcal.stats.histogram import score_histogram
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import Names
from streamcal.stream.watermark import BEGINNING

__all__ = ["ReplayOptions", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to replay, and how.

    Attributes
    ----------
    predictions, outcomes : Path or None
        Two files of values; or
    events : Path or None
        one file of records in arrival order.
    drain : bool
        At the end, release and settle everything.
    by : {"day", "month"} or None
        Calendar periods to report.
    apply : bool
        Serve raw scores again through the maps made on the way.
    """

    predictions: Path | None = None
    outcomes: Path | None = None
    events: Path | None = None
    drain: bool = False
    by: Literal["day", "month"] | None = None
    apply: bool = True

    @property
    def paths(self) -> list[Path]:
        """The files read."""
        return [path for path in (self.predictions, self.outcomes, self.events) if path is not None]


def replay(
    config: Config, options: ReplayOptions, *, on_progress: Callable[[Progress], None] | None = None
) -> ReplayResult:
    """Run the events through the engine and sum up.

    Parameters
    ----------
    config : Config
    options : ReplayOptions
    on_progress : callable, optional
        Called after each block of records, and once before the first.

    Raises
    ------
    InputFileError
        A file cannot be read to its end, or a line of an events file is no record.
    """
    inputs = [(str(path), file_sha256(path)) for path in options.paths]
    settings = engine_settings(
        config,
        keep_everything=True,
        period=options.by,
        apply_maps=options.apply,
        shadow=not options.apply,
        json_values=options.events is None,
    )
    source, total = _source(options, settings)
    history = HistoryRecorder(ece_bins=settings.ece_bins, min_count=settings.min_count)
    engine = Engine(settings, source.partitions, on_history=history.record)
    history.attach(engine)

    def tell() -> None:
        if on_progress is not None:
            on_progress(Progress(engine.decoding.records.total(), total, _day(engine.event_time_ms)))

    tell()
    Runtime(engine, source, snapshot_every_s=float("inf"), commit_every_s=float("inf"), after_poll=tell).run()
    # History ends with the input: draining moves neither event time nor windows.
    if options.drain:
        engine.drain()
    return _result(config, options, engine, history, inputs)


def _source(options: ReplayOptions, settings: EngineSettings) -> tuple[FilesLog, int]:
    """The log, and records in all."""
    if options.events is not None:
        events = EventsFile(options.events)
        extents = events.extents()
        partitions = frozenset(partition for _, partition in extents) or frozenset((0,))
        return FilesLog(partitions, events.polls(extents)), sum(extent.records for extent in extents.values())
    assert options.predictions is not None
    assert options.outcomes is not None
    total = sum(count_lines(path) for path in options.paths)
    pair = FilePair(options.predictions, options.outcomes, _clock(settings))
    return FilesLog(frozenset((0,)), pair.polls()), total


def _day(time_ms: int | None) -> str:
    return "" if time_ms is None else str(np.datetime64(time_ms, "ms").astype("datetime64[D]"))


def _clock(settings: EngineSettings) -> Callable[[str, Sequence[LogRecord]], NDArray[np.int64]]:
    """Event times of records, by decoders of their own so that nothing is interned for the engine."""
    predictions, outcomes = settings.decoders(Names(settings.dimensions))
    decoders: dict[str, PredictionDecoder | OutcomeDecoder] = {"predictions": predictions, "outcomes": outcomes}

    def clock(topic: str, records: Sequence[LogRecord]) -> NDArray[np.int64]:
        batch = decoders[topic].decode(records)
        times = np.full(len(records), BEGINNING, dtype=np.int64)
        times[batch.clock_row] = batch.clock_ms
        return times

    return clock


def _result(
    config: Config, options: ReplayOptions, engine: Engine, history: HistoryRecorder, inputs: list[tuple[str, str]]
) -> ReplayResult:
    segments: dict[int, dict[str, dict[str, Any]]] = {model: {} for model in engine.loops}
    for window in engine.published.windows():
        for model, found in engine.published.of_window(window):
            for key, pair in _pairs(found).items():
                segments[model].setdefault(key, {"windows": {}, "periods": []})["windows"][window] = pair
    if options.by is not None:
        _add_periods(engine, segments)
    rejected: Counter[str] = Counter()
    for (_, reason), count in engine.tally.rejected.items():
        rejected[reason] += count
    models = {
        engine.names.models[model]: ModelReport(
            segments=held,
            history=history.entries.get(engine.names.models[model], []),
            alarms=[_alarm(record) for record in engine.watches[model].alarms],
            maps=[attempt.report() for attempt in engine.loop(model).history],
            changes=[{"at_ms": change.at_ms, "trigger": change.trigger} for change in engine.watches[model].changes],
            histogram=_histogram(engine, model),
        )
        for model, held in segments.items()
    }
    return ReplayResult(
        product_version=__version__,
        config_hash=config.hash(),
        inputs=inputs,
        from_ms=engine.decoding.first_ms,
        to_ms=engine.event_time_ms if engine.event_time_ms is not None else engine.decoding.last_ms,
        counters=engine.tally.total(),
        rejected=dict(rejected),
        pending=engine.tally.pending(),
        models=models,
    )


def _histogram(engine: Engine, model: int) -> dict[str, list[dict[str, Any]]]:
    """Scores of the whole model by logit, raw and served; empty where nothing was labelled."""
    whole = engine.aggregate.series.whole(model)
    if whole is None:
        return {}
    counts = engine.aggregate.by_series(EVERYTHING, np.array([whole], dtype=np.int64))[0]
    return {kind: score_histogram(counts[place]) for kind, place in (("raw", RAW), ("served", SERVED))}


def _alarm(record: AlarmRecord) -> dict[str, Any]:
    return {
        "at_ms": record.at_ms,
        "ended_at_ms": record.ended_ms,
        "cut": record.series.cut,
        "segment": record.series.segment,
        "fault": record.fault,
        "evidence": record.evidence,
        "phi": record.phi,
    }


def _pairs(found: WindowFigures) -> dict[str, dict[str, Any]]:
    """Report form of every series: raw and served figures, with bins for ``all``."""
    pairs = {}
    for i, series in enumerate(found.series):
        whole = series.segment == "all"
        pairs[series.segment] = {
            "raw": figure_dict(found.raw, i, found.raw_bins if whole else None),
            "served": figure_dict(found.served, i, found.served_bins if whole else None),
        }
    return pairs


def _add_periods(engine: Engine, segments: dict[int, dict[str, dict[str, Any]]]) -> None:
    starts = engine.aggregate.periods()
    shown = engine.published.shown(EVERYTHING)
    for start, end in zip(starts, engine.aggregate.period_ends(starts), strict=True):
        for model, members in shown.items():
            for key, pair in _pairs(engine.published.of_period(start, members)).items():
                if pair["raw"].get("n") or pair["served"].get("n"):
                    segments[model][key]["periods"].append({"from_ms": start, "to_ms": end, **pair})
