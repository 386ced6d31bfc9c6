"""Many parts at once as cells to add to what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.parts.difference import Held, Rows, difference
from streamcal.parts.part import Family, Part, PartKey, SeriesKey
from streamcal.parts.source_counts import CODES
from streamcal.stats.cells import Cells, reduce_panes
from streamcal.stats.counts import promote
from streamcal.stats.series import SeriesTable

__all__ = ["Numbers", "Waiting", "net", "numbers_of", "present"]

Ints = NDArray[np.int64]
Waiting = Mapping[tuple[int, PartKey], tuple[Held | None, Part]]
"""Parts by source and key, each with what was counted of it before; all of one family and model."""
Numbers = Callable[[Sequence[SeriesKey]], Ints]
"""Gives segments their numbers."""

_BLOCK: Final = 8_192
"""Rows summed at once, at least: half a megabyte. Tables of several megabytes are new memory each time: all at once
take twice as long."""


def numbers_of(series: SeriesTable, model: int) -> Numbers:
    """The numbers of a model's segments in `series`, to be used until some are freed there."""
    known: dict[tuple[SeriesKey, ...], Ints] = {}

    def numbers(keys: Sequence[SeriesKey]) -> Ints:
        of = tuple(keys)  # the same of pane after pane
        found = known.get(of)
        if found is None:
            found = np.array([series.number(model, cut, values) for cut, values in of], dtype=np.int64)
            known[of] = found
        return found

    return numbers


def net(family: Family, waiting: Waiting, numbers: Numbers | None) -> tuple[Ints, Cells]:
    """Cells by which all parts together go beyond what was counted, none of them zero, and the pane of each.

    Parameters
    ----------
    family : Family
    waiting : Waiting
    numbers : Numbers, optional
        None where the family counts whole models only.
    """
    width = max(table.values.shape[1] for held, part in waiting.values() for table in (held, part) if table is not None)
    found = [_summed(family, block, numbers, width) for block in _blocks(waiting)]
    if len(found) == 1:
        return found[0]
    code = np.concatenate([cells.code for _, cells in found])
    return np.concatenate([pane for pane, _ in found]), Cells(code, np.concatenate([c.values for _, c in found]))


def present(waiting: Waiting, numbers: Numbers) -> tuple[Ints, Ints, Ints]:
    """Numbers of the segments of parts, the pane of each, and its latest outcome."""
    found = [numbers(part.series) for _, part in waiting.values()]
    panes = np.repeat([key.pane for _, key in waiting], [len(part) for part in found])
    return np.concatenate(found), panes, np.concatenate([part.last_ms for _, part in waiting.values()])


def _blocks(waiting: Waiting) -> Iterator[dict[tuple[int, PartKey], tuple[Held | None, Part]]]:
    """The parts, ascending by pane; all of a pane together."""
    block: dict[tuple[int, PartKey], tuple[Held | None, Part]] = {}
    rows, last = 0, 0
    for place in sorted(waiting, key=_pane):
        if rows >= _BLOCK and place[1].pane != last:
            yield block
            block, rows = {}, 0
        block[place], last = waiting[place], place[1].pane
        rows += len(waiting[place][1].code)
    yield block


def _pane(place: tuple[int, PartKey]) -> int:
    return place[1].pane


def _summed(family: Family, block: Waiting, numbers: Numbers | None, width: int) -> tuple[Ints, Cells]:
    told = [(key.pane, rows) for (_, key), (held, part) in block.items() for rows in difference(family, part, held)]
    pane = np.repeat([pane for pane, _ in told], [len(rows.code) for _, rows in told])
    code = np.concatenate([_coded(family, rows, numbers) for _, rows in told])
    panes, cells = reduce_panes(pane, code, np.concatenate([_as_wide(rows.values, width) for _, rows in told]))
    changed = cells.values.any(axis=1)
    if changed.all():
        return panes, cells
    return panes[changed], Cells(cells.code[changed], cells.values[changed])


def _coded(family: Family, rows: Rows, numbers: Numbers | None) -> Ints:
    """Codes by the numbers of segments."""
    if numbers is None:
        return rows.code
    coded: Ints = numbers(rows.series)[rows.place] * CODES[family] + rows.code
    return coded


def _as_wide(values: Ints, width: int) -> Ints:
    """Values with the columns of a weighted stream where others have them; what is taken away has them negative."""
    if values.shape[1] == width:
        return values
    return promote(values)
