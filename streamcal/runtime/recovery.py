"""A role that is ours, from claim to resumption; each by itself, and dropped when it goes elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, Protocol, TypeVar

from streamcal.state.claimed_log import Restored

__all__ = ["Durable", "Recovery"]


class Durable(Protocol):
    """A task or an aggregator."""

    def take_over(self, about: bytes) -> Iterator[Restored]:
        """Claim and restore."""
        ...


Role = TypeVar("Role", bound=Durable)


class Recovery(Generic[Role]):
    """Takes one role over, a little at a time.

    Parameters
    ----------
    role : Task or Aggregation
        Fresh, with an author of its own.
    about : bytes
        What the claim says.

    Attributes
    ----------
    restored : Restored
        How far it is.
    """

    def __init__(self, role: Role, about: bytes) -> None:
        self._role = role
        self._steps = role.take_over(about)
        self.restored = Restored()

    def step(self) -> Role | None:
        """Do a little; the role once it is complete. Raises as `ClaimedLog.take_over`."""
        try:
            self.restored = next(self._steps)
        except StopIteration:
            return self._role
        return None

    def close(self) -> None:
        """Let go of what it reads from; at the end of the process its client would wait for threads that are gone."""
        if isinstance(self._steps, Generator):
            self._steps.close()
