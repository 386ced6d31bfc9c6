"""Tasks and aggregators that are ours, from claim to resumption; each by itself, and dropped when it goes elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from streamcal.state.claimed_log import AppendUncertainError, Restored

__all__ = ["Durable", "Recovery"]


class Durable(Protocol):
    """A task or an aggregator."""

    def take_over(self, about: bytes) -> Iterator[Restored]:
        """Claim and restore."""
        ...


Role = TypeVar("Role", bound=Durable)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a recovery is."""

    records: int
    ignored: int


class Recovery(Generic[Role]):
    """Takes one role over, a little at a time.

    Parameters
    ----------
    make : callable
        Makes the role anew, with an author of its own.
    about : bytes
        What the claim says.
    """

    def __init__(self, make: Callable[[], Role], about: bytes) -> None:
        self._make = make
        self._about = about
        self._role = make()
        self._steps = self._role.take_over(about)
        self.restored = Restored()

    def step(self) -> Role | None:
        """Do a little; the role once it is complete.

        An append of which nothing is known begins everything again under another author.
        """
        try:
            self.restored = next(self._steps)
        except StopIteration:
            return self._role
        except AppendUncertainError:
            self._role = self._make()
            self._steps = self._role.take_over(self._about)
        return None
