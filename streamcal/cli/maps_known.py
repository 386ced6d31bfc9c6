"""The maps of a model by the names that a command line gives them, and where they are known from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamcal.cli.maps_daemon import Daemon
from streamcal.cli.maps_published import in_file, in_topic, readable
from streamcal.cli.maps_text import plain
from streamcal.errors import DaemonError, StreamcalError

if TYPE_CHECKING:
    from streamcal.maps.families import Map

__all__ = ["MAP_NAMES", "NamedMap", "map_named", "models_of", "one_model"]

MAP_NAMES = "a version, raw, current, candidate, a family's name for its newest fit, or a file"


@dataclass(frozen=True, slots=True)
class NamedMap:
    """A map and what to call it; `corrections` of single segments are not in `map_`."""

    title: str
    map_: Map
    corrections: Mapping[str, Any] | None = None
    version: int | None = None


def models_of(daemon: Daemon) -> list[Mapping[str, Any]]:
    """What the daemon says of each model; raises DaemonError and StreamcalError, as where it shows nothing yet."""
    status = daemon.get("/status")
    if status.get("sequence"):
        models: list[Mapping[str, Any]] = status["models"]
        return models
    reason = status.get("not_ready_reason")
    if reason is not None:
        raise DaemonError(f"is not ready: {plain(reason)}", where=daemon.url, hint="ask again in a moment")
    hint = "name the process of the group that aggregates with --url"
    raise DaemonError("shows no model: it does not aggregate, or has just begun to", where=daemon.url, hint=hint)


def one_model(models: list[Mapping[str, Any]], wanted: str | None, where: str) -> str:
    """The model that was named, or the only one.

    Raises
    ------
    StreamcalError
        There is no such model, or there are several.
    """
    names = [str(model["name"]) for model in models]
    listed = ", ".join(map(plain, names)) or "none"
    if wanted is not None:
        if wanted not in names:
            raise StreamcalError(f"no model {wanted!r} has predicted", where=where, hint=f"models: {listed}")
        return wanted
    if len(names) != 1:
        raise StreamcalError("which model is meant has to be said", where=where, hint=f"--model is one of: {listed}")
    return names[0]


def map_named(text: str, model: str, told: Mapping[str, Any] | None, config: Path | None) -> NamedMap:
    """The map that `text` names.

    Parameters
    ----------
    text : str
        As `MAP_NAMES` says.
    model : str
    told : mapping or None
        The daemon's answer for the model; None: it was not asked, and versions come from the maps topic.
    config : Path or None
        Leads to that topic.

    Raises
    ------
    StreamcalError
        There is no such map.
    """
    from streamcal.maps.families import FAMILIES, Identity

    if text == "raw":
        return NamedMap("raw", Identity())
    if text.isascii() and text.isdecimal():
        return _of_version(int(text), model, told, config)
    if text == "current" and told is None:
        return _newest(model, config)
    if text in ("current", "candidate"):
        return _held(text, told)
    if text in FAMILIES:
        return _newest_fit(text, told)
    return _of_file(Path(text))


def _of_version(version: int, model: str, told: Mapping[str, Any] | None, config: Path | None) -> NamedMap:
    if told is None:
        held = {document.version: document for document in _published(model, config)}
        if version in held:
            return NamedMap(f"version {version}", held[version].to_map(), _corrections(held[version]), version)
        where, known = "maps topic", held.keys()
    else:
        entries = [entry for entry in (told["current"], told["candidate"], *told["maps"]) if entry]
        found = {entry["version"]: entry for entry in reversed(entries) if entry.get("parameters") is not None}
        if version in found:
            return _made(f"version {version}", found[version])
        where, known = "map history", found.keys()
    kept = ", ".join(map(str, sorted(known)[-20:])) or "none"
    raise StreamcalError(f"there is no version {version} of {plain(model)!r}", where=where, hint=f"versions: {kept}")


def _newest(model: str, config: Path | None) -> NamedMap:
    documents = _published(model, config)
    if not documents:
        return NamedMap("raw, as no map is in force", _identity())
    newest = documents[-1]
    return NamedMap(f"version {newest.version}", newest.to_map(), _corrections(newest), newest.version)


def _held(name: str, told: Mapping[str, Any] | None) -> NamedMap:
    held = None if told is None else told[name]
    if held is not None:
        return _made(f"version {held['version']}", held)
    if name == "current":
        return NamedMap("raw, as no map is in force", _identity())
    hint = "there is one with refit.mode: shadow, and only the daemon knows it"
    raise StreamcalError("there is no candidate in shadow", hint=hint)


def _newest_fit(family: str, told: Mapping[str, Any] | None) -> NamedMap:
    if told is None:
        raise StreamcalError(f"the newest {family} fit is known to the daemon only", hint="start it, or give --url")
    for fit in told["fits"]:
        if fit["family"] == family and fit.get("parameters") is not None:
            return _made(f"newest {family} fit", fit)
        if fit["family"] == family:
            from streamcal.cli.maps_words import in_words

            what, hint = in_words(fit["reason"])
            raise StreamcalError(f"there is no {family} fit: {what}", hint=hint)
    fitted = ", ".join(fit["family"] for fit in told["fits"]) or "none"
    raise StreamcalError(f"{family!r} is not fitted for this model", hint=f"refit.families has: {fitted}")


def _of_file(path: Path) -> NamedMap:
    if not path.exists():
        raise StreamcalError(f"{str(path)!r} names no map", hint=f"give {MAP_NAMES}")
    _, found = in_file(path)
    (documents,) = (readable(key, held) for key, held in found.items())
    return NamedMap(path.name, documents[0].to_map(), _corrections(documents[0]))


def _published(model: str, config: Path | None) -> list[Any]:
    _, published = in_topic(config)
    return readable(model, published.get(model, ()))


def _made(title: str, held: Mapping[str, Any]) -> NamedMap:
    from streamcal.maps.families import from_parameters

    map_ = from_parameters(held["family"], held["parameters"])
    return NamedMap(title, map_, held.get("corrections"), held.get("version"))


def _corrections(document: Any) -> Mapping[str, Any] | None:
    from streamcal.serve.corrections import corrections

    return corrections(document.segments)


def _identity() -> Map:
    from streamcal.maps.families import Identity

    return Identity()
