"""Progress of long work on standard error: a bar in a terminal, a line at every tenth of the way elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from streamcal.serve.table import Progress

__all__ = ["ProgressDisplay"]

_STEPS: Final = 10


class ProgressDisplay:
    """Shows how far something is, from entering to leaving its context.

    Parameters
    ----------
    console : Console, optional
        Standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._shown = 0
        self._bar: Bar | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self._bar = Bar(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, progress: Progress) -> None:
        """Show `progress` from now on."""
        if self._bar is not None:
            self._bar.update(self._task, total=progress.total, completed=progress.done, description=str(progress))
            return
        step = progress.done * _STEPS // progress.total if progress.total else 0
        if step > self._shown:
            self._shown = step
            self._console.print(str(progress), markup=False, highlight=False, soft_wrap=True)
