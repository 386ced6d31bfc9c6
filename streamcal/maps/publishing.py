"""What the loop appends to the maps topic: keys, and which versions are publications of one promotion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.state.trees import recorded

__all__ = ["Epochs", "PublishMap", "shadow_key", "shadowed_model"]

Ints = NDArray[np.int64]

_SHADOW: Final = "#shadow"

MOST_EPOCHS: Final = 1000
"""Promotions that `Epochs` remembers: predictions of older ones are long judged."""


@dataclass(frozen=True, slots=True)
class PublishMap:
    """Append `document` to the maps topic under `key`."""

    key: str
    document: bytes


def shadow_key(model: str) -> str:
    """Key of candidates that are not served (``refit.mode: shadow``)."""
    return model + _SHADOW


def shadowed_model(key: str) -> str | None:
    """The model whose candidates are published under `key`; None where `key` is a model's own.

    >>> shadowed_model("ctr#shadow"), shadowed_model("ctr#2")
    ('ctr', None)
    """
    return key.removesuffix(_SHADOW) if key.endswith(_SHADOW) else None


@recorded
@dataclass(slots=True)
class Epochs:
    """Which versions a tracking filter published after which promotion.

    What begins again with a new map, the evidence of alarms, does not begin again with a publication.

    Attributes
    ----------
    spans : list of (int, int)
        Version promoted and last version published from it, ascending; promotions without publications are not here.
    """

    spans: list[tuple[int, int]] = field(default_factory=list)

    def publish(self, version: int) -> None:
        """`version` is a publication; it goes on from the version before it, a promotion or a publication."""
        goes_on = bool(self.spans) and self.spans[-1][1] == version - 1
        promoted = self.spans.pop()[0] if goes_on else version - 1
        self.spans.append((promoted, version))
        del self.spans[:-MOST_EPOCHS]

    def promotion_of(self, versions: Ints) -> Ints:
        """`versions`, publications replaced by the promotion they go on from.

        >>> epochs = Epochs([(3, 8)])
        >>> epochs.promotion_of(np.array([2, 3, 5, 8, 9])).tolist()
        [2, 3, 3, 3, 9]
        """
        if not self.spans:
            return versions
        promoted, last = np.array(self.spans, dtype=np.int64).T
        place = np.maximum(np.searchsorted(promoted, versions, side="right") - 1, 0)
        inside = (versions >= promoted[place]) & (versions <= last[place])
        return np.where(inside, promoted[place], versions)
