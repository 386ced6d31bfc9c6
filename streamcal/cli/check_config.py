"""`streamcal check-config`: every problem of a configuration, or what it means and what it will cost."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamcal.cli.options import ConfigOption, configuration

if TYPE_CHECKING:
    from streamcal.runtime.config import Config, ModelSettings
    from streamcal.runtime.estimate import Estimate

__all__ = ["check_config"]

_KAFKA_VARIABLES: Final = "STREAMCAL_KAFKA__"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def check_config(
    config: ConfigOption = None,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Check what `run` needs, even if nothing about Kafka is set.")
    ] = False,
    rate: Annotated[float, typer.Option(metavar="N", help="Predictions per second, all models together.")] = 100.0,
    segments: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CUT=]N", help="Segments with traffic per cut, or of one cut (country,device=50); repeatable."
        ),
    ] = None,
) -> None:
    """Print every problem, or a summary, series and bytes."""
    settings = configuration(config, kafka=kafka or _speaks_of_kafka(config))

    from streamcal.runtime.estimate import Load, estimate

    load = Load(_positive(rate), _segment_counts(settings, segments or []))
    for key, text in (*_summary(settings), *_cost(settings, estimate(settings, load), load.predictions_per_second)):
        typer.echo(f"{key:<12}  {text}")


def _speaks_of_kafka(path: Path | None) -> bool:
    from streamcal.runtime.yaml_reader import read_yaml

    in_file = path is not None and read_yaml(path).values.get("kafka") is not None
    return in_file or any(name.startswith(_KAFKA_VARIABLES) for name in os.environ)


def _positive(rate: float) -> float:
    if not 0 < rate < float("inf"):
        raise typer.BadParameter("must be above 0", param_hint="--rate")
    return rate


def _segment_counts(config: Config, given: Sequence[str]) -> int | dict[tuple[str, ...], int]:
    """Segments per cut; a number alone stands for every cut, none at all for the cap of each."""
    counts: dict[tuple[str, ...], int] = {}
    for text in given:
        name, sign, number = text.rpartition("=")
        if not number.isascii() or not number.isdecimal() or int(number) < 1:
            raise typer.BadParameter(f"{text!r} is not a number above 0, or CUT=N", param_hint="--segments")
        cuts = [cut for cut in config.cut_list if cut and (not sign or ",".join(cut) == name)]
        if sign and not cuts:
            known = "; ".join(",".join(cut) for cut in config.cut_list if cut) or "none"
            raise typer.BadParameter(f"{name!r} is no cut of segments.cuts ({known})", param_hint="--segments")
        counts |= dict.fromkeys(cuts, int(number))
    return counts


def _summary(config: Config) -> list[tuple[str, str]]:
    kafka, topics = config.kafka, config.topics
    lines = []
    if kafka.bootstrap_servers is not None:
        lines += [
            ("kafka", f"{', '.join(kafka.bootstrap_servers)} as group {kafka.group_id}, from {kafka.start_from}"),
            ("topics", f"{topics.predictions}, {topics.outcomes} -> {topics.maps}"),
        ]
    lengths = ", ".join(map(str, config.windows.lengths))
    cuts = "; ".join(",".join(cut) for cut in config.cut_list if cut) or "none"
    return [
        *lines,
        ("windows", f"{lengths} of {config.windows.time} time, in panes of {config.windows.pane}"),
        ("cuts", f"{cuts}; at most {config.segments.max_segments:,} segments each"),
        *(line for name in dict.fromkeys(("default", *config.models)) for line in _model_lines(config, name)),
        ("export", f"{', '.join(config.metrics.export)} at http://{config.serve.host}:{config.serve.port}/metrics"),
    ]


def _model_lines(config: Config, name: str) -> list[tuple[str, str]]:
    return [("model", _model(config.model(name))), ("alarms", _alarms(config, name))]


def _alarms(config: Config, name: str) -> str:
    """What is promised, and the threshold that makes."""
    from streamcal.runtime.wiring import detector_settings

    settings = detector_settings(config, name)
    rate, segments = settings.false_alarms_per_month, settings.share
    promise = f"{rate:g} false alarm{'s' * (rate != 1)} in 30 days over {segments:,} segment{'s' * (segments != 1)}"
    phi = "estimated" if settings.dispersion is None else f"{settings.dispersion:g}"
    band = f", shifts of up to {settings.tolerance:g} logits let pass" if settings.tolerance else ""
    return f"{name}: at most {promise}: evidence >= {settings.log_threshold:.1f}; dispersion {phi}{band}"


def _model(model: ModelSettings) -> str:
    hours = model.horizon_ms / 3_600_000
    refit = model.refit
    text = f"{model.name}: labels {model.labels} within {hours:g}h, refit {refit.mode}"
    if refit.mode != "off":
        text += f" every {refit.every} on {refit.fit_window} ({', '.join(refit.families)})"
    if model.classes:
        text += f", {len(model.classes)} classes ({', '.join(model.classes)})"
    return text + (", with a map of day 0" if model.prior is not None else "")


def _cost(config: Config, found: Estimate, rate: float) -> list[tuple[str, str]]:
    capped = f", capped at {found.max_series:,}" if found.exported_series < found.figure_series else ""
    parts: Mapping[str, int] = {
        "join": found.join_bytes,
        "panes": found.pane_bytes,
        "windows": found.window_bytes,
        "early": found.early_bytes,
    }
    split = ", ".join(f"{name} {_bytes(size)}" for name, size in parts.items())
    sampled = "" if config.events.sample_rate == 1 else f", of which {config.events.sample_rate:g} is kept"
    return [
        ("at", f"{rate:g} predictions per second{sampled}"),
        ("series", f"about {found.figure_series:,} of figures{capped}"),
        ("state", f"about {_bytes(found.state_bytes)} ({split}); {found.remembered:,} predictions remembered"),
    ]


def _bytes(size: float) -> str:
    """Bytes for people.

    >>> _bytes(999), _bytes(1_234_567)
    ('999 B', '1.2 MB')
    """
    steps = min(int(math.log(max(size, 1), 1000)), len(_UNITS) - 1)
    return f"{size / 1000**steps:.{min(steps, 1)}f} {_UNITS[steps]}"
