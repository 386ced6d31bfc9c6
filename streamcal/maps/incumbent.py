"""The map to better: what it has said since it came into force, and whether its parent would have done better.

The watch needs no version on each row: a map of the loop serves predictions from the record after its moment on, so
the rows predicted in steps since then are those it served (a producer that is a few seconds behind serves some of them
by the map before). Both maps are applied to the raw scores; nothing depends on what a producer recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.document import MapDocument
from streamcal.maps.families import Identity, Map
from streamcal.maps.judged import Generations, JudgedRows, log_loss
from streamcal.state.trees import recorded

__all__ = ["Incumbent", "higher", "in_force", "raw_scores"]

Floats = NDArray[np.float64]

_ALWAYS: Final = -(1 << 62)


@recorded
@dataclass(slots=True)
class Incumbent:
    """A map in force, or in force among the candidates of a shadow.

    Attributes
    ----------
    document : MapDocument or None
        Latest publication; None for raw scores, that is no map.
    since_ms : int
        When it was promoted: rows predicted since then are its own.
    parent : Map or None
        What it replaced; None where that is not known, and after a roll-back.
    served : Generations
        What it has served, as far back as labels can still come: one map, or what a tracking filter published.
    parent_gain : float
        Nats that the parent would have saved on its rows; negative where it is better than its parent.
    """

    document: MapDocument | None
    since_ms: int
    parent: Map | None
    served: Generations
    parent_gain: float = field(default=0.0)

    def copy(self) -> Incumbent:
        """The same, to go another way."""
        served = Generations(list(self.served.from_ms), list(self.served.maps))
        return replace(self, served=served)

    @property
    def map_(self) -> Map:
        """What is applied now."""
        newest = self.served.newest
        assert newest is not None
        return newest

    @property
    def fitted_on(self) -> int:
        """Rows of the scarcer class that it was fitted to; 0 where it was not, and where its parent is not known.

        What was gone back to has none: its own family's newest fit may be what was taken back, and has to earn it.
        """
        counts = None if self.document is None or self.parent is None else self.document.counts
        return 0 if counts is None else min(counts.positives, counts.n - counts.positives)

    def judge(self, rows: JudgedRows) -> Floats:
        """Log loss at each entry of `rows`, all predicted since it is in force; adds to the parent's gain."""
        loss = self.served.log_loss(rows)
        if self.parent is not None:
            self.parent_gain += float((loss - log_loss(rows, self.parent.apply(rows.score))).sum())
        return loss

    def cools_until(self, cool_down_ms: int) -> int:
        """Until when nothing may replace it by itself; raw scores have been there always."""
        return self.since_ms + cool_down_ms if self.document is not None and self.since_ms > 0 else 0

    def publish(self, document: MapDocument, map_: Map, moment_ms: int, memory_ms: int) -> None:
        """Let a tracking filter's next map be in force."""
        self.document = document
        self.served.put(moment_ms, map_)
        self.served.forget_before(moment_ms - memory_ms)


def in_force(document: MapDocument, map_: Map, parent: Map | None) -> Incumbent:
    """The map of `document` from its moment on."""
    return Incumbent(document, document.at_ms, parent, Generations([document.at_ms], [map_]))


def raw_scores() -> Incumbent:
    """No map: raw scores are served."""
    return Incumbent(None, 0, None, Generations([_ALWAYS], [Identity()]))


def higher(documents: Sequence[MapDocument], held: Incumbent | None) -> Incumbent | None:
    """The highest of some documents, its parent beside it where that is among them; None where `held` is as high."""
    found = {document.version: document for document in documents}
    known = 0 if held is None or held.document is None else held.document.version
    if not found or max(found) <= known:
        return None
    newest = found[max(found)]
    parent = None if newest.parent is None else found.get(newest.parent)
    return in_force(newest, newest.to_map(), None if parent is None else parent.to_map())
