"""Prometheus metrics of a producer's transformer. Importing this module loads prometheus_client; nothing else does.

Names are fixed; every reason and every known model is always there, so that a rate can be taken from the first scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from streamcal.transform.status import PROBLEMS, TransformerStatus
from streamcal.transform.transformer import CalibrationTransformer

__all__ = ["TransformerCollector"]


class TransformerCollector(Collector):
    """What a transformer's status says, read at each scrape.

    Parameters
    ----------
    transformer : CalibrationTransformer
    registry : CollectorRegistry or None
        Where it registers itself; None: nowhere yet.

    Examples
    --------
    >>> from streamcal.transform import MemorySource
    >>> registry = CollectorRegistry()
    >>> with CalibrationTransformer(MemorySource()) as transformer:
    ...     _ = TransformerCollector(transformer, registry)
    ...     _ = transformer.transform(0.3)
    ...     registry.get_sample_value("streamcal_transformer_unmapped_total", {"reason": "no_map"})
    1
    """

    def __init__(self, transformer: CalibrationTransformer, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._transformer = transformer
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector.collect`."""
        status = self._transformer.status()
        yield from _of_models(status)
        yield _counter(
            "problems",
            "Updates of the maps not taken, by reason.",
            "reason",
            ((reason, status.problems.get(reason, 0)) for reason in PROBLEMS),
        )
        yield _counter("scores", "Scores a map was applied to.", "model", status.scores.items())
        yield _counter("unmapped", "Scores returned as they came, by reason.", "reason", status.unmapped_by.items())
        yield _gauge("stale", "1 while the source has been silent for longer than stale_after_s.", float(status.stale))
        yield _gauge("source_silence_seconds", "Seconds since the source of maps last answered.", status.silent_s)
        yield _gauge("following", "Whether the thread that follows the maps lives.", float(status.following))

    def describe(self) -> Iterator[Metric]:
        """Names alone, so that registering asks nothing of the transformer."""
        for metric in self.collect():
            metric.samples = []
            yield metric


def _of_models(status: TransformerStatus) -> Iterator[Metric]:
    version = GaugeMetricFamily("streamcal_transformer_map_version", "Version of the map in force.", labels=["model"])
    age = GaugeMetricFamily(
        "streamcal_transformer_map_age_seconds",
        "Seconds since the map in force was decided, by event time; absent for a map of day 0.",
        labels=["model"],
    )
    cached = GaugeMetricFamily(
        "streamcal_transformer_map_cached",
        "Whether the map came from the cache and the source has not confirmed it since.",
        labels=["model"],
    )
    for model, known in status.maps.items():
        version.add_metric([model], known.version)
        cached.add_metric([model], float(known.cached))
        seconds = status.age_s(model)
        if seconds is not None:
            age.add_metric([model], seconds)
    yield from (version, age, cached)


def _counter(name: str, text: str, label: str, values: Iterable[tuple[str, int]]) -> Metric:
    family = CounterMetricFamily(f"streamcal_transformer_{name}", text, labels=[label])
    for value, count in values:
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"streamcal_transformer_{name}", text, value=value)
