"""What our claims say, from the configuration."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from streamcal.runtime.config import Config
from streamcal.state.about import About, rule_of
from streamcal.stats.layout import LAYOUT_ID

__all__ = ["about_of", "settings_of"]

_SECTIONS: Final = ("topics", "events", "join", "windows", "segments")
_BY_MODEL: Final = ("labels", "horizon", "classes")


def about_of(
    config: Config, version: str, *, sources: int = 0, shards: int = 0, topic_ids: Mapping[str, str] | None = None
) -> About:
    """What a claim of this process says.

    Parameters
    ----------
    config : Config
    version : str
        Of the product.
    sources, shards : int
        Partitions of the inputs and of the counts topic; 0: not known.
    topic_ids : mapping of str to str
        See `About`.
    """
    return About(
        version=version,
        layout=LAYOUT_ID,
        sources=sources,
        shards=shards,
        config_hash=config.hash(),
        settings=settings_of(config),
        who=f"{config.kafka.client_id} on {socket.gethostname()}, process {os.getpid()}",
        started_ms=int(time.time() * 1000),
        topic_ids=topic_ids or {},
    )


def settings_of(config: Config) -> dict[str, Any]:
    """Dotted key to canonical value of every setting that a state depends on; no secrets, no addresses."""
    found = {
        key: value
        for section in _SECTIONS
        for key, value in _leaves(section, getattr(config, section).model_dump(mode="json"))
        if rule_of(key).verdict != "allowed"
    }
    found["segments.cuts"] = [list(cut) for cut in config.cut_list]
    for name in config.models:
        settings = config.model(name)
        held = {"labels": settings.labels, "horizon": settings.horizon_ms, "classes": list(settings.classes)}
        found |= {f"models.{name}.{key}": held[key] for key in _BY_MODEL}
    return found


def _leaves(prefix: str, tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if key in ("prediction", "outcome"):
            yield from _leaves(f"{prefix}.{key}", value)
        else:
            yield f"{prefix}.{key}", value
