"""What the members of the group said of their partitions along with their last commits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import structlog
from kafka.errors import KafkaError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_clients import KafkaClients

__all__ = ["GroupNotes"]

_EVERY_S: Final = 5.0
"""Old enough to cost nothing, young enough beside an idle time-out of a minute."""

log = structlog.get_logger(__name__)


class GroupNotes:
    """Reads them now and then; what cannot be read stays as it was.

    Parameters
    ----------
    clients : KafkaClients
    roles : mapping of str to str
        Topic to role.
    """

    def __init__(self, clients: KafkaClients, roles: Mapping[str, str]) -> None:
        self._clients = clients
        self._roles = dict(roles)
        self._admin: Any = None
        self._read_s = -_EVERY_S
        self._notes: dict[tuple[str, int], str] = {}

    def read(self) -> Mapping[tuple[str, int], str]:
        """By part; those that said nothing are not there."""
        if time.monotonic() - self._read_s >= _EVERY_S:
            self._read_s = time.monotonic()
            try:
                self._notes = self._asked()
            except (BrokerError, KafkaError) as error:
                log.info("what other members said cannot be read", error=str(error))
                self.close()
        return self._notes

    def close(self) -> None:
        """Let go of the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _asked(self) -> dict[tuple[str, int], str]:
        group = self._clients.group_id
        if self._admin is None:
            self._admin = self._clients.admin()
        found = self._admin.list_group_offsets({group: None})[group]
        return {
            (self._roles[part.topic], part.partition): held.metadata
            for part, held in found.items()
            if part.topic in self._roles and held.metadata
        }
