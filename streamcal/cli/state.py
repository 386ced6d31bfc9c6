"""`streamcal state`: look at the state of a group, write its events out, begin anew, accept what is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamcal.cli.options import ConfigOption, configuration
from streamcal.errors import StreamcalError

if TYPE_CHECKING:
    from streamcal.parts.source_counts import CountSettings
    from streamcal.runtime.config import Config
    from streamcal.runtime.state_tools.inspect import AggregatorReport, LogReport, SourceReport
    from streamcal.runtime.state_tools.kafka_store import KafkaStateStore
    from streamcal.runtime.state_tools.reset import Begin
    from streamcal.settings import EngineSettings
    from streamcal.stream.source import SourceSettings

__all__ = ["app"]

app = typer.Typer(help="Look at the state of a group, and begin it anew.", no_args_is_help=True, rich_markup_mode=None)

YesOption = Annotated[bool, typer.Option("--yes", help="Do it; without this only what would be done is said.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Even while processes are in the group: for those that are dead already.")
]


@app.callback()
def root() -> None:
    """Look at the state of a group, and begin it anew."""


@app.command("inspect")
def inspect(
    config: ConfigOption = None, as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False
) -> None:
    """Show what the state of each partition is: who owns it, how far it has read, what waits."""
    settings = configuration(config, kafka=True)
    import json

    from streamcal.runtime.state_tools.inspect import inspect_state

    with _opened(settings) as store:
        report = inspect_state(store, *_readers(settings), about=_about(settings, store))
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2, sort_keys=True))
        return
    typer.echo(f"group {settings.kafka.group_id}: {report.members} process{'es' * (report.members != 1)} in it")
    for source in report.sources:
        _print_source(source)
    for aggregator in report.aggregators:
        _print_aggregator(aggregator)


@app.command("dump")
def dump(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the events go; compressed if it ends in .gz.")],
    config: ConfigOption = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Also where the topics do not hold everything any more.")
    ] = False,
) -> None:
    """Write the events that the state was made of, for `streamcal replay --events`."""
    settings = configuration(config, kafka=True)
    from streamcal.cli.progress import ProgressDisplay
    from streamcal.runtime.state_tools.dump import dump_events
    from streamcal.serve.table import Progress

    with _opened(settings) as store, ProgressDisplay() as display:
        _, sources, counts = _readers(settings)
        done = dump_events(
            store,
            sources,
            counts,
            out,
            partial=partial,
            on_progress=lambda records, total: display.update(Progress(records, total, "")),
        )
    typer.echo(f"{out}: {done.records:,} records, {done.advances:,} advances of silent partitions")
    if done.missing:
        typer.echo(f"{done.missing:,} records before them are not kept any more", err=True)


@app.command("reset")
def reset(config: ConfigOption = None, yes: YesOption = False, force: ForceOption = False) -> None:
    """Void all state and counts; the next start reads from where kafka.start_from says."""
    settings = configuration(config, kafka=True)
    _begin_anew(settings, None, f"from {settings.kafka.start_from} on", yes=yes, force=force)


@app.command("rebuild")
def rebuild(
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="earliest, or a time as 2024-01-31T06:00:00Z.")],
    config: ConfigOption = None,
    yes: YesOption = False,
    force: ForceOption = False,
) -> None:
    """Void all state and counts; the next start reads the inputs again from a time of their records."""
    settings = configuration(config, kafka=True)
    _begin_anew(settings, start, f"again from {start} on", yes=yes, force=force)


@app.command("accept-gap")
def accept_gap(config: ConfigOption = None, yes: YesOption = False, force: ForceOption = False) -> None:
    """Go on after records that were deleted before they were read; windows say so until the gap has left them."""
    settings = configuration(config, kafka=True)
    from streamcal.runtime.state_tools.gaps import accept_gaps, find_gaps

    with _opened(settings) as store:
        _, sources, counts = _readers(settings)
        gaps = find_gaps(store, sources, counts)
        for gap in gaps:
            lost = gap.to_offset - gap.from_offset
            what = f"{gap.topic}[{gap.partition}]: offsets {gap.from_offset} to {gap.to_offset - 1} are gone"
            typer.echo(f"{what}, {lost:,} record{'s' * (lost != 1)} that were not counted")
        if not gaps:
            typer.echo("nothing is missing: every state goes on with a record that is kept")
            return
        _make_sure(store, "accept it", yes=yes, force=force)
        accept_gaps(store, sources, counts, _about(settings, store))
    typer.echo("accepted; streamcal_windows_incomplete names the partitions until the gap has left the longest window")


def _begin_anew(settings: Config, start: str | None, where: str, *, yes: bool, force: bool) -> None:
    from streamcal.runtime.state_tools.reset import begin_at
    from streamcal.runtime.state_tools.reset import reset as void

    at_ms = None if start is None else _time_ms(start)
    if start is not None and settings.join.repartition != "none":
        raise StreamcalError(
            "the inputs cannot be read again: with join.repartition what was read is deleted",
            hint="begin with another kafka.group_id and kafka.start_from, which writes the topics again",
        )
    with _opened(settings) as store:
        typer.echo(
            f"state and counts of group {settings.kafka.group_id} ({store.sources} partitions) become void; the next "
            f"start reads {where}. Maps stay in force."
        )
        _make_sure(store, "do it", yes=yes, force=force)
        begin: Begin = {} if start is None else begin_at(store, at_ms)
        done = void(store, _about(settings, store), begin)
    typer.echo(f"done: {done.sources + done.shards} states void, {done.taken_back:,} counts taken back")
    for number, offsets in sorted(done.begin.items()):
        typer.echo(f"  partition {number}: " + ", ".join(f"{topic} from {at}" for topic, at in offsets.items()))


def _make_sure(store: KafkaStateStore, what: str, *, yes: bool, force: bool) -> None:
    members = store.members()
    if members and not force:
        raise StreamcalError(
            f"{members} process{'es are' if members != 1 else ' is'} in the group",
            hint="stop them first; one that was killed leaves when its session ends (45 s by default, "
            "kafka.consumer.session_timeout_ms), --force does not wait for that",
        )
    if not yes:
        raise StreamcalError("nothing was done", hint=f"--yes to {what}")


def _time_ms(text: str) -> int | None:
    """None for earliest."""
    from pydantic import ValidationError

    from streamcal.runtime.config_kafka import Kafka

    try:
        start = Kafka.model_validate({"start_from": text})
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise typer.BadParameter(f"{text!r}: {reason}", param_hint="--from") from error
    if start.start_from == "latest":
        raise typer.BadParameter("latest is `streamcal state reset` with kafka.start_from: latest", param_hint="--from")
    return start.start_from_ms


@contextlib.contextmanager
def _opened(settings: Config) -> Iterator[KafkaStateStore]:
    from streamcal.cli.quiet import log_warnings_only
    from streamcal.errors import BrokerError
    from streamcal.runtime.state_tools.kafka_store import KafkaStateStore
    from streamcal.state.reading import FencedError, LogUnavailableError

    log_warnings_only()
    store = KafkaStateStore(settings)
    try:
        yield store
    except FencedError as error:
        hint = "a process of the group is at work: stop all of them and do it again"
        raise StreamcalError(str(error), hint=hint) from error
    except LogUnavailableError as error:
        raise BrokerError(str(error), hint="the broker did not answer; do it again, which completes it") from error
    finally:
        store.close()


def _readers(settings: Config) -> tuple[EngineSettings, SourceSettings, CountSettings]:
    from streamcal.runtime.monitor_wiring import count_settings, source_settings
    from streamcal.runtime.wiring import engine_settings

    engine = engine_settings(settings, json_values=True)
    return engine, source_settings(engine), count_settings(engine)


def _about(settings: Config, store: KafkaStateStore) -> bytes:
    from streamcal import __version__
    from streamcal.runtime.claims import about_of

    about = about_of(settings, __version__, sources=store.sources, shards=store.shards, topic_ids=store.topic_ids)
    return about.to_bytes()


def _print_source(source: SourceReport) -> None:
    typer.echo(f"\npartition {source.partition}")
    _print_log(source.log)
    if source.log.error is not None:
        return
    for topic, offset in source.offsets.items():
        unread, lost = source.unread[topic], source.missing.get(topic, 0)
        at = _time(source.watermarks_ms.get(topic))
        gone = f", {lost:,} of them deleted" if lost else ""
        typer.echo(f"  {topic:<12} next offset {offset:,}, {unread:,} unread{gone}, event time {at}")
    typer.echo(f"  {'pending':<12} {source.pending:,} predictions, {source.bytes:,} bytes remembered")
    for topic, lost in source.gaps.items():
        typer.echo(f"  {'gap':<12} {lost:,} records of {topic} were given up")
    if source.advances:
        typer.echo(f"  {'advances':<12} {source.advances:,} recorded of silent partitions")
    if source.mark is not None:
        typer.echo(f"  {'told':<12} up to {_pairs(source.mark['offsets'])} under claim {source.mark['claim']}")


def _print_aggregator(held: AggregatorReport) -> None:
    typer.echo(f"\naggregator {held.shard}")
    _print_log(held.log)
    if held.log.error is not None:
        return
    position = "the first record" if held.position is None else f"offset {held.position:,}"
    typer.echo(f"  {'counts':<12} goes on at {position}, the topic holds {held.counts_first:,} to {held.counts_end:,}")
    typer.echo(f"  {'event time':<12} {_time(held.event_time_ms)}")
    if held.maps:
        typer.echo(f"  {'maps':<12} {_pairs(held.maps)}")


def _print_log(log: LogReport) -> None:
    if log.error is not None:
        typer.echo(f"  {'unreadable':<12} {log.error}")
    claim = log.claim
    if claim is None:
        typer.echo(f"  {'claim':<12} none yet")
    else:
        where = "before what is kept" if claim["offset"] is None else f"offset {claim['offset']:,}"
        typer.echo(
            f"  {'claim':<12} {where}, by {claim['who']}, streamcal {claim['version']}, "
            f"started {_time(claim['since_ms'])}"
        )
    snapshot = (
        "none" if log.snapshot_bytes is None else f"{log.snapshot_bytes:,} bytes at offset {log.snapshot_offset:,}"
    )
    typer.echo(f"  {'snapshot':<12} {snapshot}; {log.deltas:,} deltas since, {log.delta_bytes:,} bytes")
    if log.reset is not None:
        typer.echo(f"  {'reset':<12} waits for a start")
    if log.changed:
        typer.echo(f"  {'changed':<12} since it was made: {', '.join(log.changed)}")


def _pairs(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in found.items())


def _time(at_ms: int | None) -> str:
    return "none yet" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
