"""Rows in columns, found by a 128-bit id: the one table both sides of the join are kept in.

Theory of operation
-------------------
Rows live in parallel numpy columns (no Python object per row). An open-addressing index of row numbers,
probed linearly, leads from an id to the *head* of its chain; rows of one id are linked by `next`. All
operations take whole batches. `find` loops over probe depth, `chains` over chain length; `add` and `remove` do not:
chains are linked both ways, so that one id repeated a million times costs no more than a million ids. Freed rows
are reused; the index forgets them by a tombstone and is rebuilt when tombstones crowd it.

A table that is mostly empty, as after an outage of one side, gives its memory back: whenever as many rows as half of it
were removed and three quarters are free, it is cut behind its last live row, and the lowest rows are used first from
then on, so that a live row far behind leaves room once it goes too.

What may go out of step: nothing between calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["NO_ROW", "KeyedRows", "first_of_each"]

NO_ROW = -1
_EMPTY = -1
_TOMBSTONE = -2
_FIRST_ROWS = 1024
_GROWTH = 1.3
"""Growing by less than doubling keeps the average slack of ten columns near 15 %."""
_SPARSE = 4
"""Room for so many times the live rows is too much."""
_MAX_LOAD = 0.6
"""Linear probing stays below three probes on average up to this share of used places."""

_LOAD_AFTER_REBUILD = 0.45
"""Leaves room for as many tombstones as a third of the live rows before the next rebuild."""

Rows = NDArray[np.int32]
Hash = NDArray[np.uint64]


class KeyedRows:
    """A growable table of rows keyed by a 128-bit id, several rows per id allowed.

    Guarantees: every live row is reachable from exactly one index place through its chain; a row number
    is stable from `add` until `remove`.

    Parameters
    ----------
    columns : mapping of str to dtype
        Payload columns; read and written by the owner through `self.columns[name][rows]`.
    """

    def __init__(self, columns: Mapping[str, DTypeLike]) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(_FIRST_ROWS, dtype=dtype) for name, dtype in columns.items()
        }
        self._hi: Hash = np.zeros(_FIRST_ROWS, dtype=np.uint64)
        self._lo: Hash = np.zeros(_FIRST_ROWS, dtype=np.uint64)
        self._next: Rows = np.full(_FIRST_ROWS, NO_ROW, dtype=np.int32)
        self._prev: Rows = np.full(_FIRST_ROWS, NO_ROW, dtype=np.int32)
        self._dead: NDArray[np.bool_] = np.ones(_FIRST_ROWS, dtype=np.bool_)
        self._free: Rows = np.arange(_FIRST_ROWS - 1, -1, -1, dtype=np.int32)
        self._free_count = _FIRST_ROWS
        self._index: Rows = np.full(4 * _FIRST_ROWS, _EMPTY, dtype=np.int32)
        self._used_places = 0
        self._live = 0
        self._removed = 0

    def __len__(self) -> int:
        return self._live

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, the index and the free list."""
        own = (self._hi, self._lo, self._next, self._prev, self._dead, self._free, self._index)
        return sum(a.nbytes for a in own) + sum(a.nbytes for a in self.columns.values())

    def dump_state(self) -> dict[str, Any]:
        """Rows as they lie, up to the last live one; row numbers are part of the state."""
        live = self.live()
        stop = int(live[-1]) + 1 if len(live) else 0
        own: dict[str, NDArray[Any]] = {
            "hi": self._hi,
            "lo": self._lo,
            "next": self._next,
            "prev": self._prev,
            "dead": self._dead,
        }
        return {
            "rows": {name: column[:stop] for name, column in own.items()},
            "columns": {name: column[:stop] for name, column in self.columns.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote; the index and the free rows follow from the rest."""
        rows = state["rows"]
        stop = len(rows["dead"])
        room = max(0, _FIRST_ROWS - stop)
        self._hi, self._lo = _roomy(rows["hi"], room), _roomy(rows["lo"], room)
        self._next, self._prev = _roomy(rows["next"], room), _roomy(rows["prev"], room)
        self._dead = np.append(rows["dead"], np.ones(room, dtype=np.bool_))
        self.columns = {name: _roomy(column, room) for name, column in state["columns"].items()}
        self._free = np.zeros(stop + room, dtype=np.int32)
        free = np.flatnonzero(self._dead).astype(np.int32)[::-1]
        self._free_count = len(free)
        self._free[: len(free)] = free
        self._live = stop + room - len(free)
        self._index_anew(self.live()[self._prev[self.live()] < 0], 0)

    def find(self, hi: Hash, lo: Hash) -> Rows:
        """Head row of each id's chain, `NO_ROW` where the id is unknown; shape (n,)."""
        heads, _ = self._probe(hi, lo)
        return heads

    def ids(self, rows: Rows) -> tuple[Hash, Hash]:
        """High and low halves of the ids of live rows."""
        return self._hi[rows], self._lo[rows]

    def chains(self, heads: Rows) -> tuple[NDArray[np.int64], Rows]:
        """All rows of the chains starting at `heads`.

        Returns
        -------
        owner : int64 array, shape (m,)
            Index into `heads` each row belongs to, ascending.
        rows : int32 array, shape (m,)
        """
        owner = np.flatnonzero(heads >= 0)
        row = heads[owner]
        owners, rows = [owner], [row]
        while True:
            row = self._next[row]
            alive = row >= 0
            if not alive.any():
                break
            owner, row = owner[alive], row[alive]
            owners.append(owner)
            rows.append(row)
        if len(owners) == 1:
            return owners[0], rows[0]
        all_owners = np.concatenate(owners)
        order = np.argsort(all_owners, kind="stable")
        return all_owners[order], np.concatenate(rows)[order]

    def live(self) -> Rows:
        """All rows in use, ascending."""
        return np.flatnonzero(~self._dead).astype(np.int32)

    def add(self, hi: Hash, lo: Hash, heads: Rows) -> Rows:
        """Add one row per id and return the row numbers.

        Parameters
        ----------
        hi, lo : uint64 arrays, shape (n,)
            Ids; they may repeat.
        heads : int32 array, shape (n,)
            What `find` returned for them in the present state.
        """
        count = len(hi)
        if not count:
            return np.empty(0, dtype=np.int32)
        if self._free_count < count:
            self._grow(count)
        self._free_count -= count
        rows = self._free[self._free_count : self._free_count + count].copy()
        self._hi[rows] = hi
        self._lo[rows] = lo
        self._dead[rows] = False
        self._live += count
        self._link(rows, heads)
        return rows

    def remove(self, rows: Rows) -> None:
        """Forget `rows` (distinct, live); nothing may be read from them any more."""
        if not len(rows):
            return
        heads = rows[self._prev[rows] < 0]
        self._dead[rows] = True
        after, before = self._past_dead(self._next, rows), self._past_dead(self._prev, rows)
        linked = before >= 0
        self._next[before[linked]] = after[linked]
        linked = after >= 0
        self._prev[after[linked]] = before[linked]
        _, places = self._probe(self._hi[heads], self._lo[heads])
        after = self._next[heads]
        self._index[places] = np.where(after >= 0, after, _TOMBSTONE)
        self._free[self._free_count : self._free_count + len(rows)] = rows
        self._free_count += len(rows)
        self._live -= len(rows)
        self._removed += len(rows)
        size = len(self._dead)
        if self._removed > size // 2 and max(_FIRST_ROWS, _SPARSE * self._live) < size:
            self._give_back()

    def _give_back(self) -> None:
        """Keep no more rows than up to the last live one, and use the lowest first."""
        self._removed = 0
        self._index = np.full(4 * _FIRST_ROWS, _EMPTY, dtype=np.int32)
        KeyedRows.load_state(self, KeyedRows.dump_state(self))  # what lies around the table stays as it is

    def _link(self, rows: Rows, heads: Rows) -> None:
        """Chain new rows: those of one id in order, second in the chain of its head or as a new chain.

        A head stays what it is, and so does the index.
        """
        order, opens = _by_id(self._hi[rows], self._lo[rows])
        ordered = rows[order]
        self._next[ordered[:-1]] = ordered[1:]
        self._prev[ordered[1:]] = ordered[:-1]
        first, last = ordered[opens], ordered[np.append(opens[1:], len(rows)) - 1]
        head = heads[order[opens]]
        fresh = head < 0
        self._prev[first[fresh]] = NO_ROW
        self._next[last[fresh]] = NO_ROW
        first_behind, last_behind, head = first[~fresh], last[~fresh], head[~fresh]
        after = self._next[head]
        self._next[head], self._prev[first_behind] = first_behind, head
        self._next[last_behind] = after
        self._prev[after[after >= 0]] = last_behind[after >= 0]
        self._enter(first[fresh])

    def _enter(self, heads: Rows) -> None:
        """Index the heads of new chains."""
        if self._used_places + len(heads) > _MAX_LOAD * len(self._index):
            self._rebuild(len(heads))
        self._used_places += len(heads)
        self._place(heads)

    def _past_dead(self, link: Rows, rows: Rows) -> Rows:
        """First live row (or `NO_ROW`) from each of the dead `rows` along `link`.

        The links of the dead are moved on along the way, so a run of k dead rows takes log2(k) rounds.
        """
        at: Rows = link[rows]
        while (skip := (at >= 0) & self._dead[at]).any():
            at[skip] = link[at[skip]]
            link[rows] = at
        return at

    def _probe(self, hi: Hash, lo: Hash) -> tuple[Rows, NDArray[np.int64]]:
        """Head rows and their index places (-1 where unknown)."""
        mask = np.int64(len(self._index) - 1)
        heads = np.full(len(hi), NO_ROW, dtype=np.int32)
        places = np.full(len(hi), -1, dtype=np.int64)
        active = np.arange(len(hi))
        place = lo.view(np.int64) & mask if lo.flags.c_contiguous else lo.astype(np.int64) & mask
        while active.size:
            row = self._index[place]
            here = row >= 0
            hit = here & (self._lo[row] == lo[active]) & (self._hi[row] == hi[active])
            found = active[hit]
            heads[found] = row[hit]
            places[found] = place[hit]
            on = (row != _EMPTY) & ~hit
            active = active[on]
            place = (place[on] + 1) & mask
        return heads, places

    def _place(self, rows: Rows) -> None:
        mask = np.int64(len(self._index) - 1)
        place = self._lo[rows].view(np.int64) & mask
        while rows.size:
            free = self._index[place] < 0
            self._index[place[free]] = rows[free]
            # Two rows after one place: the last write stays, the other moves on.
            lost = self._index[place] != rows
            rows = rows[lost]
            place = (place[lost] + 1) & mask

    def _grow(self, count: int) -> None:
        old = len(self._hi)
        size = max(int(old * _GROWTH), old + count)
        extra = size - old
        for name, column in self.columns.items():
            self.columns[name] = np.concatenate([column, np.zeros(extra, dtype=column.dtype)])
        self._hi = np.concatenate([self._hi, np.zeros(extra, dtype=np.uint64)])
        self._lo = np.concatenate([self._lo, np.zeros(extra, dtype=np.uint64)])
        self._next = np.concatenate([self._next, np.full(extra, NO_ROW, dtype=np.int32)])
        self._prev = np.concatenate([self._prev, np.full(extra, NO_ROW, dtype=np.int32)])
        self._dead = np.concatenate([self._dead, np.ones(extra, dtype=np.bool_)])
        free = np.empty(size, dtype=np.int32)
        free[:extra] = np.arange(size - 1, old - 1, -1, dtype=np.int32)
        free[extra : extra + self._free_count] = self._free[: self._free_count]
        self._free = free
        self._free_count += extra

    def _rebuild(self, coming: int) -> None:
        """Index the heads anew, without tombstones, with room for `coming` more."""
        self._index_anew(self._index[self._index >= 0], coming)

    def _index_anew(self, heads: Rows, coming: int) -> None:
        size = len(self._index)
        while len(heads) + coming > _LOAD_AFTER_REBUILD * size:
            size *= 2
        self._index = np.full(size, _EMPTY, dtype=np.int32)
        self._used_places = len(heads)
        self._place(heads)


def _roomy(column: NDArray[Any], room: int) -> NDArray[Any]:
    """A column with `room` more rows."""
    return np.append(column, np.zeros(room, dtype=column.dtype))


def first_of_each(key: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each entry is the first of its value.

    >>> first_of_each(np.array([7, 8, 7, 7], dtype=np.uint64)).tolist()
    [True, True, False, False]
    """
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.ones(len(key), dtype=np.bool_)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first


def _by_id(hi: Hash, lo: Hash) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order that brings equal ids together, each in its given order, and where in it a new id begins."""
    order = np.argsort(lo, kind="stable")
    same = lo[order[1:]] == lo[order[:-1]]
    if same.any():
        if (same & (hi[order[1:]] != hi[order[:-1]])).any():  # half a hash in common: once in a universe's lifetime
            order = np.lexsort((hi, lo))
        same = (lo[order[1:]] == lo[order[:-1]]) & (hi[order[1:]] == hi[order[:-1]])
    return order, np.flatnonzero(np.append(True, ~same))
