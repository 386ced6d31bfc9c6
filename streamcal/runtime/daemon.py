"""`streamcal run`: the monitor as a long-running member of a consumer group."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Final

import structlog

from streamcal import __version__
from streamcal.runtime.claims import about_of
from streamcal.runtime.cluster import Cluster
from streamcal.runtime.config import Config
from streamcal.runtime.held_roles import MonitorSettings
from streamcal.runtime.logging_setup import configure_logging, relay_client_warnings
from streamcal.runtime.logs.kafka_cluster import KafkaCluster
from streamcal.runtime.loop import Readers
from streamcal.runtime.map_requests import MapDesk
from streamcal.runtime.monitor import Monitor
from streamcal.runtime.monitor_wiring import monitor_settings
from streamcal.runtime.rejections import Rejections
from streamcal.runtime.running import Running
from streamcal.runtime.serving import http_application, http_server
from streamcal.serve.requests import RequestQueue

__all__ = ["run"]

_INSIST_S: Final = 2.0
"""Signals later than this after the first mean it."""

_SESSION_MS: Final = 45_000
"""The client's own default."""

log = structlog.get_logger(__name__)

Rearrange = Callable[[MonitorSettings, Cluster], tuple[MonitorSettings, Cluster]]


def run(config: Config, *, rearrange: Rearrange = lambda settings, cluster: (settings, cluster)) -> None:
    """Join, count, refit and serve until SIGTERM or SIGINT, then commit and return.

    Parameters
    ----------
    config : Config
        Loaded for Kafka.
    rearrange : callable
        Where tests set smaller sizes, and faults between two calls to the broker: nothing of them is in the product.

    Raises
    ------
    ServeError
        The HTTP address is taken; the group is not joined then.
    BrokerError
        Kafka cannot be reached, lacks a topic, or refuses.
    StreamcalError
        A file named in the configuration cannot be read, or the state would pass its limits.
    """
    configure_logging(sys.stdout)
    readers, requests = Readers(), RequestQueue()
    relay_client_warnings(lambda: readers.readiness.declared)
    app = http_application(
        config,
        readers.holder,
        readers.readiness,
        readers.commits,
        counts=readers.counts.ask,
        counters=readers.counters,
        requests=requests,
    )
    server = http_server(app, config.serve)
    settings = monitor_settings(config, __version__)
    with server, _stop_signals() as stopped, contextlib.closing(KafkaCluster(config, readers.counters)) as cluster:
        about = about_of(
            config, __version__, sources=cluster.sources, shards=cluster.shards, topic_ids=cluster.topic_ids
        )
        settings = replace(settings, about=about.to_bytes())
        monitor = Monitor(*rearrange(settings, cluster), time.monotonic, Rejections(cluster.dead_letters))
        log.info("serving", url=server.url, version=__version__)
        desk = MapDesk(requests, monitor)
        with contextlib.closing(monitor):
            Running(monitor, readers, config.kafka.commit_interval.ms / 1000, _session_s(config), desk).run(
                stopped.is_set
            )
    log.info("stopped", read=monitor.read)


def _session_s(config: Config) -> float:
    """After so long without a sign of us the group gives our parts to others."""
    return float(config.kafka.consumer.get("session_timeout_ms", _SESSION_MS)) / 1000


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM or SIGINT sets; one more, seconds later, ends the process as it would have without us."""
    stopped = threading.Event()
    before = {int(number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    first_at = [math.inf]

    def stop(number: int, _: FrameType | None) -> None:
        # Not the very next one: `timeout` and terminals signal the process and then its group.
        if time.monotonic() > first_at[0] + _INSIST_S:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        first_at[0] = min(first_at[0], time.monotonic())
        stopped.set()

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
