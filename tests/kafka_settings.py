"""What every way of starting a test broker shares: its settings, its ports, and the word for having none."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["SETTINGS", "NoBrokerError", "free_ports"]

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # one node holds every internal topic
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # few partitions: the default 50 cost seconds at the first commit
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # a group of one need not wait for others to join
    "group.initial.rebalance.delay.ms": "0",
    # a misspelt topic must be an error, as in production
    "auto.create.topics.enable": "false",
    # a killed broker may register again only when its old session has run out (default 9 s)
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # tests wait for compaction
    "log.cleaner.backoff.ms": "2000",
    # records carry event times of years past; retention by time would delete them at once
    "log.retention.ms": "-1",
}


class NoBrokerError(Exception):
    """No broker can be had here; the message says what was tried and what to install."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now; all held at once so that they differ."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
