"""`streamcal init`: a configuration written from a sample of the topics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from streamcal.inspect.first_config import Explorer, FirstConfig
    from streamcal.inspect.sample import Sample

__all__ = ["init"]

_MAPPINGS: Final = frozenset(
    {"events.outcome.filter", "events.prediction.segments", "kafka.consumer", "kafka.producer", "alarms.ece"}
)
_RECORDS: Final = 5_000
_SECONDS: Final = 30.0


def init(  # noqa: PLR0913 - one option each
    *,
    predictions: Annotated[str | None, typer.Option(metavar="TOPIC", help="Topic of the predictions.")] = None,
    outcomes: Annotated[str | None, typer.Option(metavar="TOPIC", help="Topic of the outcomes.")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers to ask first.")
    ] = None,
    predictions_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of topics: values of predictions, JSON lines.")
    ] = None,
    outcomes_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of topics: values of outcomes, JSON lines.")
    ] = None,
    events_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of topics: records of both, as `replay --events` has.")
    ] = None,
    schema_registry: Annotated[
        str | None, typer.Option(metavar="URL", help="Schema registry, where values are in the Confluent wire format.")
    ] = None,
    group_id: Annotated[str, typer.Option(metavar="NAME", help="Consumer group of the daemon.")] = "streamcal",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Take this key of the configuration as given (events.outcome.id=order.id); repeatable.",
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="Records of each topic to look at, from its end.")] = _RECORDS,
    seconds: Annotated[float, typer.Option(min=1, help="Longest time to read.")] = _SECONDS,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where it goes; standard output otherwise.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over FILE.")] = False,
) -> None:
    """Write a configuration from a sample of the topics; reasons are comments in it.

    Reads without a group, commits nothing. Connection settings are given with --set kafka.security.KEY=VALUE.
    """
    _check_sources(predictions, outcomes, bootstrap_servers, (predictions_file, outcomes_file), events_file)
    if out is not None and out.exists() and not force:
        raise typer.BadParameter(f"{out} exists; --force writes over it", param_hint="--out")
    given = _given(settings or [])
    if schema_registry is not None:
        given["events.schema_registry.url"] = schema_registry

    from streamcal.cli.quiet import log_warnings_only
    from streamcal.inspect.first_config import Explorer, first_config

    log_warnings_only()
    if bootstrap_servers is not None and predictions is not None and outcomes is not None:
        own = {"kafka.bootstrap_servers": bootstrap_servers, "kafka.group_id": group_id}
        given = {**own, "topics.predictions": predictions, "topics.outcomes": outcomes, **given}
        samples = _from_kafka(given, Explorer(given), records, seconds)
        source = f"topics {predictions} and {outcomes}"
    else:
        samples = _from_files(predictions_file, outcomes_file, events_file, records)
        source = str(events_file) if events_file is not None else f"{predictions_file} and {outcomes_file}"
    day = datetime.now(tz=UTC).date().isoformat()
    head = [f"Written by `streamcal init` on {day} from {source}; every other key has its default.", ""]
    _hand_out(first_config(samples, Explorer(given), given, head=head), out)


def _check_sources(
    predictions: str | None,
    outcomes: str | None,
    servers: str | None,
    files: tuple[Path | None, Path | None],
    events: Path | None,
) -> None:
    kafka = [value is not None for value in (predictions, outcomes, servers)]
    pair = [path is not None for path in files]
    if any(kafka) and not all(kafka):
        raise typer.BadParameter("--bootstrap-servers, --predictions and --outcomes go together")
    if any(pair) and not all(pair):
        raise typer.BadParameter("--predictions-file and --outcomes-file go together")
    if sum((all(kafka), all(pair), events is not None)) != 1:
        raise typer.BadParameter("give --bootstrap-servers with --predictions and --outcomes, or files")


def _given(settings: list[str]) -> dict[str, Any]:
    """Dotted keys and values of --set."""
    from streamcal.runtime.yaml_reader import parse_value

    found: dict[str, Any] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not all(key.split(".")) or "." not in key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE with a dotted key", param_hint="--set")
        try:
            found |= _flat(key, parse_value(value))
        except ValueError as error:
            raise typer.BadParameter(f"{key} {error}", param_hint="--set") from error
    for key in found:
        if below := [other for other in found if other.startswith(f"{key}.")]:
            raise typer.BadParameter(f"{key} and {below[0]} are given; give one", param_hint="--set")
    if any(key.startswith("events.outcome.filter.") for key in found):
        text = "give the filter in one: --set 'events.outcome.filter={path: type, equals: click}'"
        raise typer.BadParameter(text, param_hint="--set")
    return found


def _flat(key: str, value: Any) -> dict[str, Any]:
    """Keys below a section that is given whole; a mapping that is a value stays one."""
    if not isinstance(value, dict) or key in _MAPPINGS or key.startswith("models."):
        return {key: value}
    return {name: held for below, inner in value.items() for name, held in _flat(f"{key}.{below}", inner).items()}


def _from_kafka(given: dict[str, Any], explorer: Explorer, records: int, seconds: float) -> tuple[Sample, Sample]:
    from streamcal.inspect.broker import TailReader
    from streamcal.inspect.collecting import collect
    from streamcal.inspect.first_config import kafka_section
    from streamcal.inspect.guess_ids import guess_ids
    from streamcal.runtime.logs.kafka_clients import KafkaClients

    def matched(predictions: Sample, outcomes: Sample) -> float:
        ids = guess_ids(
            explorer.table(predictions),
            explorer.table(outcomes),
            prediction=given.get("events.prediction.id"),
            outcome=given.get("events.outcome.id"),
        )
        return 0.0 if ids is None else ids.shared

    reader = TailReader(KafkaClients(kafka_section(given)), seconds)
    try:
        return collect(reader, (given["topics.predictions"], given["topics.outcomes"]), records, matched)
    finally:
        reader.close()


def _from_files(
    predictions: Path | None, outcomes: Path | None, events: Path | None, records: int
) -> tuple[Sample, Sample]:
    from streamcal.inspect.sample import sample_events, sample_lines

    if events is not None:
        return sample_events(events, records)
    assert predictions is not None
    assert outcomes is not None
    return sample_lines(predictions, records), sample_lines(outcomes, records)


def _hand_out(found: FirstConfig, out: Path | None) -> None:
    from streamcal.inspect.findings import printable

    if out is None:
        typer.echo(found.text, nl=False)
    else:
        _write(out, found.text)
    for line in found.summary:
        typer.echo(line, err=True)
    for doubt in found.doubts:
        typer.echo(printable(f"look at: {doubt}"), err=True)
    for finding in found.findings:
        typer.echo(f"{finding.level}: {printable(finding.what)}\n  {printable(finding.change)}", err=True)
    if out is not None:
        typer.echo(
            f"written: {out}; next: streamcal check-config --config {out}, streamcal doctor --config {out}", err=True
        )


def _write(out: Path, text: str) -> None:
    from streamcal.errors import StreamcalError

    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise StreamcalError(what, where=str(out), hint="give --out another file") from error
