"""Months of a stream as they pass: a live table in a terminal, plain lines anywhere else.

Fed with plain rows by whoever runs the stream; knows neither engine nor clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

__all__ = ["MonthRow", "MonthTable", "Progress"]

_COLUMNS: Final = ("month", "n", "ECE raw", "ECE served", "slope raw", "slope served")
_STEPS: Final = 10
"""Progress lines of a whole run where the end is known: enough to see that it lives, few enough for a log."""
_STEP_EVENTS: Final = 50_000
"""Events between progress lines where it is not."""


@dataclass(frozen=True, slots=True)
class MonthRow:
    """Figures of one UTC month of predictions; None is absent.

    `finished` once nothing more can fall into the month.
    """

    month: str
    n: int
    ece_raw: float | None
    ece_served: float | None
    slope_raw: float | None
    slope_served: float | None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the stream is.

    Attributes
    ----------
    done : int
        Events read.
    total : int or None
        Events there are, where known.
    note : str
        A few words beside it, such as the event time reached.
    """

    done: int
    total: int | None = None
    note: str = ""

    def __str__(self) -> str:
        part = f"{self.done:,} events"
        if self.total:
            part = f"{self.done:,} of {self.total:,} events ({100 * self.done // self.total} %)"
        return f"{part}, {self.note}" if self.note else part


class MonthTable:
    """Shows months and progress on `console` from entering to leaving its context.

    In a terminal one table is redrawn in place at each update. Elsewhere each month is printed once, when
    finished (or at the end), in the order given, and progress at every tenth of the way.

    Parameters
    ----------
    console : Console, optional
        Standard output by default.
    title : str
        Line above the table.
    """

    def __init__(self, console: Console | None = None, *, title: str = "") -> None:
        self._console = Console() if console is None else console
        self._title = title
        self._rows: Sequence[MonthRow] = ()
        self._progress: Progress | None = None
        self._printed: set[str] = set()
        self._step = 0
        live = self._console.is_terminal and not self._console.is_dumb_terminal
        # Redrawn by `update` alone, so that the stream's pace sets the cost.
        self._live = Live(console=self._console, auto_refresh=False) if live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self._line(self._title)
            self._line(_plain(_COLUMNS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            return
        self._print_months(self._rows)
        if kind is None and self._rows:
            self._line(_plain(_mean(self._rows)))

    def update(self, rows: Sequence[MonthRow], progress: Progress | None = None) -> None:
        """Show `rows` (every month so far, ascending) and `progress` from now on."""
        self._rows, self._progress = tuple(rows), progress
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
            return
        self._print_months([row for row in self._rows if row.finished])
        self._print_progress()

    def _picture(self) -> Group:
        table = Table(*_COLUMNS, title=Text(self._title) if self._title else None, show_footer=len(self._rows) > 1)
        footer = _mean(self._rows)
        for place, column in enumerate(table.columns):
            column.justify = "left" if place == 0 else "right"
            column.footer = footer[place]
        for row in self._rows:
            table.add_row(*map(Text, _cells(row)), style=None if row.finished else "italic")
        return Group(table, Text("" if self._progress is None else str(self._progress)))

    def _print_months(self, rows: Sequence[MonthRow]) -> None:
        for row in rows:
            if row.month not in self._printed:
                self._printed.add(row.month)
                self._line(_plain(_cells(row)))

    def _print_progress(self) -> None:
        progress = self._progress
        if progress is None:
            return
        step = progress.done * _STEPS // progress.total if progress.total else progress.done // _STEP_EVENTS
        if step > self._step:
            self._step = step
            self._line(str(progress))

    def _line(self, text: str) -> None:
        if text:
            self._console.print(Text(text), soft_wrap=True)


def _cells(row: MonthRow) -> tuple[str, ...]:
    figures = (row.ece_raw, row.ece_served, row.slope_raw, row.slope_served)
    return (row.month, f"{row.n:,}", *map(_figure, figures))


def _mean(rows: Sequence[MonthRow]) -> tuple[str, ...]:
    """Footer: all rows together, and the mean ECE of the months, each counting the same."""
    eces = ([row.ece_raw for row in rows], [row.ece_served for row in rows])
    means = []
    for column in eces:
        known = [value for value in column if value is not None]
        means.append(_figure(sum(known) / len(known) if known else None))
    return ("mean", f"{sum(row.n for row in rows):,}", *means, "", "")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _plain(cells: Sequence[str]) -> str:
    return f"{cells[0]:<8}" + "".join(f"{cell:>13}" for cell in cells[1:]).rstrip()
