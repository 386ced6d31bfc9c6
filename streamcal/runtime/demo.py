"""The whole loop in one process on the flights: producer, monitor, refits, transformer.

Theory of operation
-------------------
A producer thread plays the airline. In the order of event time it scores each flight through a
`CalibrationTransformer`, which follows the maps topic, sends the prediction with a `CalibratingProducer`, and sends
the outcome when it became known. The caller's thread is the monitor: the same loop, engine and configuration as
`run`, on a log in memory.

The log holds `CAPACITY` unread events per topic, then the producer waits. So the producer is never further ahead of
the monitor than that, and a new map reaches scores made a few hours of event time later, as it would live; with an
unbounded log the year would be sent before the first refit. Raw figures equal those of `replay` to the bit. Served
ones depend on when a map arrived, here as in production; see `CAPACITY`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec
from starlette.types import ASGIApp

from streamcal.engine import Engine
from streamcal.runtime.config import Config
from streamcal.runtime.flights import Flights
from streamcal.runtime.logs.memory import MemoryBroker, MemoryLog, MemoryMaps, MemoryProducer
from streamcal.runtime.loop import Readers, Runtime
from streamcal.runtime.months import MonthHolder
from streamcal.runtime.serving import http_application
from streamcal.runtime.wiring import engine_settings
from streamcal.snapshot import Snapshot
from streamcal.transform import CalibratingProducer, CalibrationTransformer

__all__ = ["CAPACITY", "Demo"]

CAPACITY: Final = 50
"""Unread events per topic; an hour or two of flights. At full speed a map is that late: mean monthly ECE of served
scores .030 to .031, where a replay, in which a map applies from the next record on, has .021."""

_PICTURE_S: Final = 0.5
"""Between snapshots: often enough to look alive, and a few percent of the work."""

_DAY_MS: Final = 86_400_000


class Demo:
    """Streams flights through everything at once.

    Parameters
    ----------
    config : Config
    flights : Flights
    days_per_second : float or None
        Pace of event time; None: as fast as the monitor reads.

    Attributes
    ----------
    app : ASGI application
        What to serve over HTTP.
    maps_published : int
    """

    def __init__(self, config: Config, flights: Flights, *, days_per_second: float | None = None) -> None:
        settings = engine_settings(config, keep_everything=True, period="month")
        self._flights = flights
        self._days_per_second = days_per_second
        self._broker = MemoryBroker(capacity=CAPACITY, now_ms=lambda: time.time_ns() // 1_000_000)
        self._log = MemoryLog(self._broker, max_records=CAPACITY)
        self._engine = Engine(settings, self._log.partitions)
        self._holder = MonthHolder(self._engine)
        self._readers = Readers(holder=self._holder)
        self.app: ASGIApp = http_application(config, self._holder, self._readers.readiness, self._readers.commits)

    @property
    def maps_published(self) -> int:
        """Maps the refits put into force so far."""
        return len(self._broker.maps_from(0))

    @property
    def events(self) -> int:
        """Events there are: a prediction and an outcome per flight."""
        return 2 * len(self._flights)

    @property
    def read(self) -> int:
        """Events read so far."""
        return self._engine.decoding.records.total()

    def run(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        on_picture: Callable[[Snapshot], None] | None = None,
    ) -> bool:
        """Work until every event was counted (True) or `should_stop` (False); all threads have ended by then.

        `on_picture` is called with each snapshot as readers see it, months included.
        """
        self._holder.on_picture = on_picture
        runtime = Runtime(self._engine, self._log, readers=self._readers, snapshot_every_s=_PICTURE_S)
        with (
            CalibrationTransformer(MemoryMaps(self._broker)) as transformer,
            _Feed(self._flights, self._broker, transformer, self._days_per_second) as feed,
        ):
            runtime.run(lambda: should_stop() or self._all_read(feed))
            complete = self._all_read(feed)
        self._readers.readiness.ready()  # figures stay up: nothing is wrong with a stream that came to its end
        return complete

    def _all_read(self, feed: _Feed) -> bool:
        # In this order: what the feed sent before it ended is in the log by now.
        return feed.ended and not any(self._broker.unread().values())


class _Feed:
    """The producer thread, from entering to leaving its context; what failed there is raised on leaving."""

    def __init__(
        self,
        flights: Flights,
        broker: MemoryBroker,
        transformer: CalibrationTransformer,
        days_per_second: float | None,
    ) -> None:
        self._flights = flights
        self._broker = broker
        self._outcomes = MemoryProducer(broker)
        self._predictions = CalibratingProducer(self._outcomes, transformer)
        self._ms_per_s = None if days_per_second is None else days_per_second * _DAY_MS
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="flights", daemon=True)
        self._encode = msgspec.json.Encoder().encode

    @property
    def ended(self) -> bool:
        """Whether nothing more will be sent."""
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._broker.close()  # it may be waiting for room
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for this one
            self._error = error

    def _send_all(self) -> None:
        flights, total = self._flights, len(self._flights)
        started, first_ms = time.monotonic(), int(flights.scored_ms.min()) if total else 0
        for event in flights.events().tolist():
            i = event % total
            time_ms = int(flights.scored_ms[i] if event < total else flights.known_ms[i])
            if self._ms_per_s is not None:
                self._stop.wait(max(0.0, started + (time_ms - first_ms) / self._ms_per_s - time.monotonic()))
            if self._stop.is_set():
                return
            if event < total:
                segments = {"carrier": flights.carrier[i], "origin": flights.origin[i]}
                self._predictions.send(
                    id=flights.id[i], score=float(flights.score[i]), ts_ms=time_ms, segments=segments
                )
            else:
                value = self._encode({"id": flights.id[i], "ts": time_ms, "label": int(flights.label[i])})
                self._outcomes.send("outcomes", value, flights.id[i].encode())
