"""Deletes what the daemon has read of the internal topics: nothing else ever does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.repartition import Purge

__all__ = ["delete_what_was_read"]


def delete_what_was_read(clients: KafkaClients, purge: Purge, parts: Sequence[Any], now_ms: int) -> None:
    """Delete of `parts` what the daemon's group had committed an hour before `now_ms`; raises KafkaError."""
    if not parts:
        return
    group = clients.group_id or ""
    admin = clients.admin()
    try:
        told = admin.list_group_offsets({group: list(parts)}).get(group, {})
        known = {part: held.offset for part, held in told.items() if held.offset > 0}
        if gone := purge.seen(now_ms, known):
            admin.delete_records(dict(gone), timeout_ms=admin_timeout_ms)
    finally:
        admin.close()
