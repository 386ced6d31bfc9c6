"""`streamcal maps refit|promote|rollback|pin|unpin`: what a person asks of the daemon that aggregates.

The request is durable before it is answered; who asked and why are kept in the map history.
"""

from __future__ import annotations

import contextlib
import getpass
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streamcal.cli.maps_daemon import (
    CaFileOption,
    ElsewhereError,
    TokenFileOption,
    UrlOption,
    daemon_of,
    token_of,
)
from streamcal.cli.maps_diff import CutOffOption, ModelOption, WindowOption, checked
from streamcal.cli.maps_known import map_named, models_of, one_model
from streamcal.cli.maps_preview import present_of_daemon, print_comparison
from streamcal.cli.maps_text import plain
from streamcal.cli.maps_words import in_words
from streamcal.cli.options import ConfigOption, configuration
from streamcal.errors import DaemonError, StreamcalError

__all__ = ["pin", "promote", "refit", "rollback", "unpin"]

WhoOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who asks, for the map history. Default: the login name.")
]
WhyOption = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the map history.")]
RequiredWhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for the map history.")]
WaitOption = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.0, max=3600.0, help="Longest wait for what comes of it.")
]

_PAUSE_S: Final = 0.25
_MAY_BE: Final = "it may have been done or not: look at `streamcal maps show` or the status page before asking again"


def refit(
    config: ConfigOption = None,
    model: ModelOption = None,
    who: WhoOption = None,
    why: WhyOption = "",
    wait: WaitOption = 30.0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Try now to better the map in force, whether pinned or cooling down; all bars and guards hold."""
    desk = _Desk(config, url, token_file, ca_file, model)
    desk.ask({"what": "refit", "who": _who(who), "why": why}, wait)


def promote(  # noqa: PLR0913 -- one option each
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", min=1, help="A version of the map history, or the candidate.")
    ] = None,
    *,
    why: RequiredWhyOption,
    family: Annotated[
        str | None, typer.Option(metavar="NAME", help="The newest fit of this family instead of a version.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    config: ConfigOption = None,
    model: ModelOption = None,
    cut_off: CutOffOption = None,
    window: WindowOption = None,
    who: WhoOption = None,
    wait: WaitOption = 30.0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Put a map in force: a version, a family's newest fit, or without either the candidate in shadow.

    Shows what would change and asks for confirmation. Needs no gain and may take any step; only labels that contradict
    the map's mean refuse it.
    """
    if version is not None and family is not None:
        raise typer.BadParameter("give a version or a family, not both", param_hint="--family")
    _check_why(why)
    desk = _Desk(config, url, token_file, ca_file, model)
    cut_offs = checked(cut_off, desk.cut_offs)
    told = desk.daemon.get("/maps", model=desk.model)
    current = map_named("current", desk.model, told, config)
    wanted = map_named(_name(version, family), desk.model, told, config)
    print_comparison(current, wanted, present_of_daemon(desk.daemon, desk.model, window), cut_offs)
    if not yes:
        _confirm(f"Put {wanted.title} in force for {plain(desk.model)}?")
    # The candidate by its number: another may take its place while somebody reads.
    asked = {"version": wanted.version if family is None else None, "family": family}
    desk.ask({"what": "promote", "who": _who(who), "why": why, **asked}, wait)


def rollback(  # noqa: PLR0913 -- one option each
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", min=1, help="A version that was in force. Default: the parent.")
    ] = None,
    *,
    why: RequiredWhyOption,
    config: ConfigOption = None,
    model: ModelOption = None,
    who: WhoOption = None,
    wait: WaitOption = 30.0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Go back to what was in force before, under a new version; nothing is asked first.

    Refits go on: `maps pin` keeps them from putting another map in force.
    """
    _check_why(why)
    desk = _Desk(config, url, token_file, ca_file, model)
    desk.ask({"what": "rollback", "version": version, "who": _who(who), "why": why}, wait)


def pin(
    why: RequiredWhyOption,
    config: ConfigOption = None,
    model: ModelOption = None,
    who: WhoOption = None,
    wait: WaitOption = 30.0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Keep the map in force: no refit replaces it and no roll-back takes it back until `maps unpin`."""
    _check_why(why)
    _Desk(config, url, token_file, ca_file, model).ask({"what": "pin", "who": _who(who), "why": why}, wait)


def unpin(
    config: ConfigOption = None,
    model: ModelOption = None,
    who: WhoOption = None,
    why: WhyOption = "",
    wait: WaitOption = 30.0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Let refits change the map again."""
    _Desk(config, url, token_file, ca_file, model).ask({"what": "unpin", "who": _who(who), "why": why}, wait)


class _Desk:
    """One model of one daemon, with the token."""

    def __init__(
        self, config: Path | None, url: str | None, token_file: Path | None, ca_file: Path | None, model: str | None
    ) -> None:
        settings = configuration(config, kafka=False)
        self.cut_offs = settings.maps.cut_offs
        self._config, self._kafka = config, settings.kafka.bootstrap_servers is not None
        self.daemon = daemon_of(settings.serve, url, ca_file, token_of(settings.serve, token_file))
        if self.daemon.bares_token:
            typer.echo(f"{self.daemon.url}: the token crosses the network unencrypted; use https", err=True)
        try:
            self.model = one_model(models_of(self.daemon), model, self.daemon.url)
        except DaemonError as error:
            if "does not aggregate" in error.what:
                raise self._elsewhere(error) from error
            raise

    def ask(self, asked: Mapping[str, Any], wait_s: float) -> None:
        """Hand a request over, wait, and print what came of it; raises StreamcalError where it is refused."""
        request = {"model": self.model} | {name: value for name, value in asked.items() if value is not None}
        try:
            answer = self.daemon.submit(request)
        except ElsewhereError as error:
            raise self._elsewhere(error) from error
        answer = self._waited(answer, request, time.monotonic() + wait_s)
        what, subject = str(asked["what"]), f"{plain(self.model)}: {asked['what']}"
        if answer["state"] == "done":
            typer.echo(f"{subject}: done, {plain(answer['detail'])}")
            if what == "rollback":
                typer.echo("Refits go on, and may replace it later; `streamcal maps pin` stops that.")
            return
        words, hint = in_words(str(answer["detail"]))
        raise StreamcalError(f"{subject}: refused: {plain(words)}", hint=plain(hint))

    def _waited(self, answer: Mapping[str, Any], request: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
        number = int(answer["number"])
        while answer["state"] == "waiting":
            if time.monotonic() >= deadline_s:
                what = f"request {number} waits still: the daemon has not committed since"
                raise DaemonError(what, where=self.daemon.url, hint="it will be done yet; see `streamcal maps show`")
            time.sleep(_PAUSE_S)
            try:
                answer = self.daemon.request_state(number)
            except StreamcalError as error:
                what = f"the daemon went away while request {number} was carried out ({error.what})"
                raise DaemonError(what, where=self.daemon.url, hint=_MAY_BE) from error
            if any(answer.get(name) != value for name, value in request.items()):
                what = f"the daemon was started anew and knows nothing of request {number}"
                raise DaemonError(what, where=self.daemon.url, hint=_MAY_BE)
        return answer

    def _elsewhere(self, error: StreamcalError) -> StreamcalError:
        """The same, and who aggregates, where the broker says so."""
        found: list[str] = []
        if self._kafka:
            from streamcal.cli.quiet import log_warnings_only
            from streamcal.runtime.logs.kafka_clients import KafkaClients
            from streamcal.runtime.logs.kafka_members import readers_of

            settings = configuration(self._config, kafka=True)
            log_warnings_only()
            with contextlib.suppress(StreamcalError):
                counts = settings.topics.counts or f"{settings.kafka.group_id}-counts"
                found = readers_of(KafkaClients(settings.kafka), settings.kafka.group_id or "", counts)
        if not found:
            return error
        hint = f"the group's aggregator is {plain(', '.join(found))}: name it with --url"
        return type(error)(error.what, where=error.where, hint=hint)


def _name(version: int | None, family: str | None) -> str:
    return str(version) if version is not None else family or "candidate"


def _check_why(why: str) -> None:
    if not why.strip():
        raise typer.BadParameter("say why, for whoever reads the map history", param_hint="--why")


def _who(given: str | None) -> str:
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's user may have no name
        raise typer.BadParameter("this user has no name: give one", param_hint="--who") from error


def _confirm(question: str) -> None:
    try:
        agreed = typer.confirm(question)
    except typer.Abort as error:
        raise StreamcalError("nobody was there to confirm", hint="--yes does without; nothing was changed") from error
    if not agreed:
        raise StreamcalError("not confirmed; nothing was changed")
