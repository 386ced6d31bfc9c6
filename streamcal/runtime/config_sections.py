"""The sections that say what is measured: join, windows, segments, figures, alarms, refits, models; and `serve`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from streamcal.detect.bets import LEVEL_BETS
from streamcal.maps.costs import COSTS, DEFAULT_FAMILIES
from streamcal.runtime.config_events import EventFilter
from streamcal.runtime.config_fields import (
    ClassNames,
    InputFile,
    NamedDuration,
    PositiveSpan,
    Section,
    ServiceFile,
    Span,
    Text,
    problems_below,
)
from streamcal.runtime.durations import DAY_MS, Duration, parse_duration
from streamcal.serve.metrics import FIGURES

__all__ = [
    "Alarms",
    "EceAlarm",
    "Join",
    "Labels",
    "Maps",
    "Metrics",
    "ModelOverrides",
    "Prior",
    "Refit",
    "Segments",
    "Serve",
    "Windows",
]

Labels = Literal["both", "positives_only"]

FAMILIES: Final = (
    "identity",
    "prior",
    "intercept",
    "temperature",
    "platt",
    "beta",
    "isotonic",
    "girb",
    "cir",
    "tracking",
)
FITTED_FAMILIES: Final = COSTS

# The layout has an edge at every k/20 and k/15, so equal-width bins are exact for the divisors of the two.
ECE_BINS: Final = (1, 2, 3, 4, 5, 10, 15, 20)

_LARGEST_BET: Final = max(LEVEL_BETS)

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class Join(Section):
    """Which prediction and outcome belong together, and how time moves."""

    labels: Labels = "both"
    horizon: PositiveSpan = parse_duration("24h")
    skew: Span = parse_duration("0s")
    out_of_order: Span = parse_duration("60s")
    idle_timeout: PositiveSpan = parse_duration("60s")
    idle: Literal["follow", "clock"] = "follow"
    max_future: Span = parse_duration("5m")
    max_pending: Count | None = None
    repartition: Literal["none", "outcomes", "predictions", "both"] = "none"


def _run_of_panes(value: Duration, info: ValidationInfo) -> Duration:
    pane = info.data.get("pane")
    if pane is not None and value.ms % pane.ms:
        raise ValueError(f"{value} is not a multiple of windows.pane, {pane}")
    return value


class Windows(Section):
    """The panes, and the windows made of them."""

    pane: PositiveSpan = parse_duration("60s")
    lengths: Annotated[
        tuple[Annotated[NamedDuration, AfterValidator(_run_of_panes)], ...], Field(strict=False, min_length=1)
    ] = (parse_duration("1h"), parse_duration("24h"))
    time: Literal["outcome", "prediction"] = "outcome"

    @field_validator("pane")
    @classmethod
    def _divides_a_day(cls, value: Duration) -> Duration:
        if DAY_MS % value.ms:
            raise ValueError("must divide 24h, so that panes begin at midnight UTC")
        return value

    @field_validator("lengths")
    @classmethod
    def _are_distinct(cls, value: tuple[Duration, ...]) -> tuple[Duration, ...]:
        repeated = _repeated([length.ms for length in value])
        if repeated:
            raise problems_below((str(i), f"{value[i]} is the same length as another one") for i in repeated)
        return value


def _repeated(values: Sequence[object]) -> list[int]:
    """Positions of what stands earlier in `values` too."""
    return [i for i, value in enumerate(values) if value in values[:i]]


def _cut(value: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(unicodedata.normalize("NFC", name) for name in value)
    if _repeated(names):
        raise ValueError("names a dimension twice")
    if "all" in names:
        raise ValueError("cannot name a dimension 'all', which is the label of the empty cut")
    return names


Cut = Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(_cut)]


class Segments(Section):
    """By what the stream is cut into segments."""

    cuts: Annotated[tuple[Cut, ...], Field(strict=False)] = (("country",), ("country", "device"))
    max_segments: Count = 1000

    @field_validator("cuts")
    @classmethod
    def _are_distinct(cls, value: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if repeated := _repeated([frozenset(cut) for cut in value]):
            raise problems_below((str(i), "has the same dimensions as another cut") for i in repeated)
        return value


_EXPORTS: Final = ("core", "full", "bins", *FIGURES)


def _export(value: Any) -> Any:
    if value in ("core", "full"):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be core, full or a list of figure names")  # noqa: TRY004 - pydantic collects ValueError
    return tuple(value)


def _figure(value: str) -> str:
    if value not in _EXPORTS:
        raise ValueError(f"no figure is called {value!r}; known: {', '.join(_EXPORTS)}")
    return value


Figure = Annotated[Text, AfterValidator(_figure)]


class Metrics(Section):
    """Which figures are computed and exported."""

    ece_bins: int = 10
    min_count: Count = 20
    export: Annotated[tuple[Figure, ...], Field(strict=False, min_length=1), BeforeValidator(_export)] = ("core",)
    max_series: Count = 50_000

    @field_validator("ece_bins")
    @classmethod
    def _lies_on_the_layout(cls, value: int) -> int:
        if value not in ECE_BINS:
            raise ValueError(f"must be one of {', '.join(map(str, ECE_BINS))}")
        return value


class EceAlarm(Section):
    """A plain threshold on ECE, gated so that a small segment cannot pass it by chance."""

    above: Annotated[float, Field(gt=0, lt=1)]
    min_n: Count = 1000  # chance alone then keeps the mean of an ECE over 10 bins below .04
    min_z: Annotated[float, Field(ge=0)] = 3.0  # a calibrated segment passes it about once in 700 independent looks


def _dispersion(value: Any) -> str | float:
    if value == "estimate":
        return "estimate"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < float("inf"):
        raise ValueError("must be `estimate` or a number from 1 up")
    return float(value)


def _tolerance(value: float) -> float:
    if not value < _LARGEST_BET:
        raise ValueError(
            f"must be below {_LARGEST_BET} (logits): no larger fault is looked for, so nothing would alarm"
        )
    return value


class Alarms(Section):
    """When an alarm is raised."""

    false_alarms_per_month: Positive = 1.0
    tolerance_logit: Annotated[float, Field(ge=0), AfterValidator(_tolerance)] = 0.1
    dispersion: Annotated[Literal["estimate"] | float, PlainValidator(_dispersion)] = "estimate"
    ece: EceAlarm | None = None
    change_triggers: bool = True


def _family(value: str) -> str:
    if value not in FAMILIES:
        raise ValueError(f"no family is called {value!r}; known: {', '.join(FAMILIES)}")
    if value not in FITTED_FAMILIES:
        raise ValueError(f"{value!r} is not fitted, it is configured: models.<name>.prior")
    return value


Family = Annotated[Text, AfterValidator(_family)]


class Refit(Section):
    """When and from what a calibration map is fitted again."""

    mode: Literal["auto", "shadow", "off"] = "auto"
    fit_window: PositiveSpan = parse_duration("14d")
    every: PositiveSpan = parse_duration("1h")
    families: Annotated[tuple[Family, ...], Field(strict=False, min_length=1)] = DEFAULT_FAMILIES
    min_count: Count = 50
    segments: Annotated[tuple[Text, ...], Field(strict=False)] = ()

    @field_validator("families")
    @classmethod
    def _are_distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := _repeated(value):
            raise problems_below((str(i), f"{value[i]!r} is named twice") for i in repeated)
        return value


CutOff = Annotated[float, Field(gt=0, lt=1)]


class Maps(Section):
    """Signatures of map documents: both keys left out, none is made and none asked for; and what previews show."""

    signing_key_file: ServiceFile | None = None
    verify_key_files: Annotated[tuple[ServiceFile, ...], Field(strict=False)] = ()
    cut_offs: Annotated[tuple[CutOff, ...], Field(strict=False)] = ()


class Prior(Section):
    """The map in force before any label: exactly one of the three."""

    negative_sampling_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    positive_weight: Positive | None = None
    map_file: InputFile | None = None

    @model_validator(mode="after")
    def _is_exactly_one(self) -> Prior:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none"
            raise ValueError(f"needs exactly one of {', '.join(type(self).model_fields)}; {names} given")
        return self


class ModelOverrides(Section):
    """What differs for one model; a key left out has the value of its own section."""

    classes: ClassNames | None = None
    filter: EventFilter | None = None
    labels: Labels | None = None
    horizon: PositiveSpan | None = None
    alarms: Alarms | None = None
    refit: Refit | None = None
    prior: Prior | None = None


def _hosts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_PORT_OR_PATH: Final = re.compile(r"[/\s@?#*]|:\d+$")


def _host_name(value: str) -> str:
    """A name as browsers send it, without scheme and port."""
    if _PORT_OR_PATH.search(value):
        raise ValueError("must be a name alone, like streamcal.example.org: no scheme, port, path or wildcard")
    return value


HostName = Annotated[Text, AfterValidator(_host_name)]


class Serve(Section):
    """Where the HTTP side listens, and whom it answers."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9871
    allowed_hosts: Annotated[tuple[HostName, ...], Field(strict=False), BeforeValidator(_hosts)] = ()
    admin_token_file: ServiceFile | None = None
    tls_cert_file: ServiceFile | None = None
    tls_key_file: ServiceFile | None = None

    @model_validator(mode="after")
    def _has_both_or_neither(self) -> Serve:
        given = {"tls_cert_file": self.tls_cert_file, "tls_key_file": self.tls_key_file}
        missing = [name for name, path in given.items() if path is None]
        if len(missing) == 1:
            other = next(name for name in given if name not in missing)
            raise problems_below([(missing[0], f"is needed beside serve.{other}")])
        return self
