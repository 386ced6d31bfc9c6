"""The state of a refit loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from streamcal.maps.document import encode
from streamcal.maps.loop import ModelLoop, PublishMap

__all__ = ["dump_loop", "load_loop", "standing"]


def standing(loop: ModelLoop) -> list[PublishMap]:
    """What is in force, to be published once more."""
    champion = loop._champion  # noqa: SLF001
    return [] if champion is None else [PublishMap(loop.name, encode(champion))]


def dump_loop(loop: ModelLoop) -> dict[str, Any]:
    """The loop as a tree of state."""
    champion = loop._champion  # noqa: SLF001
    return {
        "version": loop.version,
        "results": [[*key, count] for key, count in loop.results.items()],
        "champion": None if champion is None else encode(champion),
    }


def load_loop(loop: ModelLoop, state: Mapping[str, Any]) -> None:
    """Take up what `dump_loop` wrote."""
    loop.version = state["version"]
    loop.results = Counter({(result, reason): count for result, reason, count in state["results"]})
    if state["champion"] is not None:
        loop.adopt([state["champion"]])
