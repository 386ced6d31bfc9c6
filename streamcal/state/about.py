"""What a claim says of its author, and which changes of the configuration the state can follow.

A state keeps its meaning under another value of a setting if everything that was counted stays true of the old value,
and nothing it remembers makes it judge a later event wrongly. Where that is not so the inputs have to be read again, or
the state begins anew. `CHANGES` says which setting is which, once; documentation and refusal are made from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from streamcal.state.reading import StateLostError

__all__ = [
    "CHANGES",
    "OTHER_PARTITIONS",
    "About",
    "Change",
    "ConfigChangeError",
    "Verdict",
    "changes",
    "check_followed",
    "rule_of",
]

Verdict = Literal["allowed", "rebuild", "refused"]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, and what the state depends on.

    Attributes
    ----------
    version : str
        Of the product.
    layout : str
        Id of the bin layout.
    state_format : int
    sources, shards : int
        Partitions of the inputs and of the counts topic; 0: not known.
    config_hash : str
    settings : mapping
        Dotted key to canonical value of every setting that counts depend on.
    who : str
        Client id, host and process.
    started_ms : int
        When that process started.
    topic_ids : mapping of str to str
        Kafka's own ids of the topics that offsets of the state are of, by role; those the broker tells.
    """

    version: str = ""
    layout: str = ""
    state_format: int = 1
    sources: int = 0
    shards: int = 0
    config_hash: str = ""
    settings: Mapping[str, Any] = {}
    who: str = ""
    started_ms: int = 0
    topic_ids: Mapping[str, str] = {}

    def to_bytes(self) -> bytes:
        """For a claim; equal contents give equal bytes."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_bytes(cls, data: bytes) -> About | None:
        """Read what `to_bytes` wrote; None where it says nothing that can be read."""
        try:
            return _DECODER.decode(data)
        except msgspec.DecodeError:
            return None


_DECODER: Final = msgspec.json.Decoder(About)


class Rule(NamedTuple):
    """What becomes of a state when a setting, or a section, changes."""

    key: str
    verdict: Verdict
    why: str


CHANGES: Final[tuple[Rule, ...]] = (
    Rule("kafka", "allowed", "says how to get to the broker; another `group_id` has a state of its own"),
    Rule("topics.predictions", "rebuild", "offsets belong to a topic"),
    Rule("topics.outcomes", "rebuild", "offsets belong to a topic"),
    Rule("topics.counts", "rebuild", "the other topic lacks what was told so far"),
    Rule(
        "topics.state",
        "allowed",
        "begins anew with another `topics.counts`; the same one holds counts of the old state, and is refused",
    ),
    Rule("topics.maps", "allowed", "the maps in force are published there at once"),
    Rule("topics.dead_letter", "allowed", "holds for events read from then on"),
    Rule("events.format", "allowed", "events remembered are decoded already"),
    Rule("events.key_format", "allowed", "events remembered are decoded already"),
    Rule("events.schema_registry", "allowed", "events remembered are decoded already"),
    Rule("events.max_weight", "allowed", "holds for events read from then on"),
    Rule("events.max_bytes", "allowed", "holds for events read from then on"),
    Rule("events.sample_rate", "rebuild", "predictions remembered would wait for outcomes that are not taken any more"),
    Rule("events.classes", "rebuild", "predictions remembered were taken apart into the classes that were configured"),
    Rule("events.prediction", "allowed", "holds for events read from then on"),
    Rule("events.prediction.id", "rebuild", "outcomes would be compared with other ids than those remembered"),
    Rule("events.prediction.model", "rebuild", "outcomes would be compared with other models than those remembered"),
    Rule("events.prediction.time", "rebuild", "times remembered would not compare with those that follow"),
    Rule("events.prediction.time_unit", "rebuild", "times remembered would not compare with those that follow"),
    Rule("events.prediction.time_source", "rebuild", "times remembered would not compare with those that follow"),
    Rule("events.outcome", "rebuild", "labels and ids remembered would not compare with those that follow"),
    Rule("events.outcome.format", "allowed", "events remembered are decoded already"),
    Rule("join.labels", "rebuild", "predictions have been released by the other rule"),
    Rule("join.horizon", "rebuild", "predictions have been released and forgotten by the other horizon"),
    Rule("join.skew", "rebuild", "outcomes have been settled and forgotten by the other skew"),
    Rule("join.out_of_order", "rebuild", "events were late or not by the other watermark"),
    Rule("join.idle_timeout", "allowed", "advances of silent partitions are recorded as they happen"),
    Rule("join.idle", "allowed", "advances of silent partitions are recorded as they happen"),
    Rule("join.max_future", "allowed", "holds for events read from then on"),
    Rule("join.max_pending", "allowed", "limits what is remembered and changes nothing of it"),
    Rule("join.repartition", "rebuild", "offsets belong to a topic, and another topic is read"),
    Rule("windows", "rebuild", "counts are kept in the panes, and for as long as the windows that were configured"),
    Rule("segments", "rebuild", "counts are kept by the segments, and stored in the chunks that were configured"),
    Rule("metrics", "allowed", "figures are made anew from the counts"),
    Rule("alarms", "allowed", "evidence stays, and begins again under another tolerance; alarms in force stay"),
    Rule("refit", "allowed", "holds for attempts from then on; a longer fit window fills up"),
    Rule("maps", "allowed", "holds for documents from then on"),
    Rule("models.<name>", "allowed", "holds from then on"),
    Rule("models.<name>.labels", "rebuild", "predictions have been released by the other rule"),
    Rule("models.<name>.classes", "rebuild", "predictions remembered were taken apart into the classes it had"),
    Rule("models.<name>.horizon", "rebuild", "predictions have been released and forgotten by the other horizon"),
    Rule("serve", "allowed", "says where figures are served"),
    Rule("transform", "allowed", "belongs to another command"),
    Rule(
        "(id of a topic)", "rebuild", "it was deleted and made anew: offsets of the state are not those of its records"
    ),
    Rule("(bin layout)", "rebuild", "counts of different layouts do not add up"),
    Rule(
        "(partitions of the inputs)",
        "refused",
        "ids have moved to other partitions, and the state knows them where they were",
    ),
    Rule("(partitions of topics.counts)", "refused", "models have moved to other partitions"),
)
"""Most specific key first wins; in parentheses what no key sets. For a model of which no event was read everything is
allowed: there is no state of it."""

_BY_KEY: Final = {rule.key: rule for rule in CHANGES}
_FACTS: Final = {
    "layout": "(bin layout)",
    "sources": "(partitions of the inputs)",
    "shards": "(partitions of topics.counts)",
}
OTHER_PARTITIONS: Final = (
    "Keys have moved, and the state knows them where they were; reading the inputs again does not help. Begin with "
    "another kafka.group_id (and other topics.state and topics.counts, where they are set), or stop all processes of "
    "the group and delete its topics of state and counts; either way everything is counted anew."
)
"""What to do where the inputs have other numbers of partitions than the state."""
_REMEDY: Final[Mapping[Verdict, str]] = {
    "allowed": "",
    "rebuild": "Put the old value back, where that can be done; or read the inputs again under the new one (`streamcal "
    "state rebuild`), as far as their topics go back; or begin anew (`streamcal state reset`).",
    "refused": OTHER_PARTITIONS,
}


class Change(NamedTuple):
    """A setting that differs from what the state was made under."""

    key: str
    before: Any
    after: Any
    rule: Rule


class ConfigChangeError(StateLostError):
    """The configuration was changed in a way the state cannot follow."""

    exit_code = 2


def rule_of(key: str) -> Rule:
    """The rule of a dotted key.

    Raises
    ------
    KeyError
        No rule says anything of it.

    >>> rule_of("alarms.ece").verdict, rule_of("models.ads.horizon").verdict, rule_of("models.ads.filter").key
    ('allowed', 'rebuild', 'models.<name>')
    """
    parts = key.split(".")
    if parts[0] == "models" and len(parts) > 1:
        parts = ["models", "<name>", *parts[-1:]] if len(parts) > 2 else ["models", "<name>"]
    for stop in range(len(parts), 0, -1):
        if rule := _BY_KEY.get(".".join(parts[:stop])):
            return rule
    raise KeyError(key)


def changes(before: About, after: About) -> Iterator[Change]:
    """Every setting that differs."""
    for name, key in _FACTS.items():
        held, now = getattr(before, name), getattr(after, name)
        if held and now and held != now:
            yield Change(key, held, now, rule_of(key))
    for role in sorted(before.topic_ids.keys() & after.topic_ids.keys()):
        held, now = before.topic_ids[role], after.topic_ids[role]
        if held != now:
            yield Change(f"(id of topics.{role})", held, now, rule_of("(id of a topic)"))
    for key in sorted(before.settings.keys() | after.settings.keys()):
        held, now = _value(before.settings, key), _value(after.settings, key)
        if held != now:
            yield Change(key, held, now, rule_of(key))


def check_followed(
    before: bytes | None, after: bytes, *, where: str = "", models: Collection[str] | None = None
) -> None:
    """Refuse to take up a state under a configuration that it cannot follow.

    Parameters
    ----------
    before : bytes or None
        What the claim said under which the state was written; None: there is no state.
    after : bytes
        What ours says.
    where : str
        For messages.
    models : collection of str or None
        Models the state knows; None: not known yet, and what is set for single models is left for later.

    Raises
    ------
    ConfigChangeError
        Names every such setting with both values.
    """
    if before is None or before == after:
        return
    old, new = About.from_bytes(before), About.from_bytes(after)
    if old is None or new is None:
        return
    found = [change for change in changes(old, new) if change.rule.verdict != "allowed" and _concerns(change, models)]
    if not found:
        return
    lines = "".join(
        f"\n  {change.key}: {_shown(change.before)} before, {_shown(change.after)} now: {change.rule.why}"
        for change in found
    )
    worst: Verdict = "refused" if any(change.rule.verdict == "refused" for change in found) else "rebuild"
    raise ConfigChangeError(f"the state was made under another configuration{lines}", where=where, hint=_REMEDY[worst])


def _concerns(change: Change, models: Collection[str] | None) -> bool:
    parts = change.key.split(".")
    if parts[0] != "models":
        return models is None
    name = ".".join(parts[1:-1])
    # A model of several classes is known by the names of its classes.
    return models is not None and any(known == name or known.startswith(f"{name}/") for known in models)


def _value(settings: Mapping[str, Any], key: str) -> Any:
    """What a claim says; of a model that has no settings of its own what holds for every model."""
    if key in settings or not key.startswith("models."):
        return settings.get(key)
    setting = key.rpartition(".")[2]
    return settings.get("events.classes" if setting == "classes" else f"join.{setting}")


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
