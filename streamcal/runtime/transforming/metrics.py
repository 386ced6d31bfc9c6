"""The command's numbers for Prometheus: what became of the records, how many wait, and the transformer's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamcal.errors import ServeError
from streamcal.transform import CalibrationTransformer
from streamcal.transform.metrics import TransformerCollector
from streamcal.transform.stream.rewrite import OUTCOMES

__all__ = ["RecordsCollector", "exposed"]


class RecordsCollector(Collector):
    """Reads the loop's numbers at each scrape, from the exporter's thread.

    Parameters
    ----------
    counts : callable
        Gives records by outcome since the start; a mapping that is not altered afterwards.
    lag : callable
        Gives the records not yet read.
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]], lag: Callable[[], int]) -> None:
        self._counts = counts
        self._lag = lag

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector.collect`; every outcome is there from the first scrape on."""
        counts = self._counts()
        records = CounterMetricFamily(
            "streamcal_transform_records", "Records written, by what became of them.", labels=["outcome"]
        )
        for outcome in OUTCOMES:
            records.add_metric([outcome], counts.get(outcome, 0))
        yield records
        yield GaugeMetricFamily("streamcal_transform_lag", "Records of this process not yet read.", self._lag())


@contextlib.contextmanager
def exposed(
    records: RecordsCollector, transformer: CalibrationTransformer, host: str, port: int | None
) -> Iterator[None]:
    """Serve /metrics while the block runs; nothing where `port` is None.

    Raises
    ------
    ServeError
        The address cannot be listened on.
    """
    if port is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(records)
    TransformerCollector(transformer, registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        hint = "set transform.metrics_port to a free port, or to null for none"
        raise ServeError(error.strerror or str(error), where=f"{host}:{port}", hint=hint) from error
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
