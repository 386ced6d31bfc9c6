"""Prometheus metrics of a transformer, as a scrape shows them."""

from __future__ import annotations

import subprocess
import sys

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import PROBLEMS, UNMAPPED, CalibrationTransformer, MemorySource
from streamcal.transform.metrics import TransformerCollector


def scraped(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    text = generate_latest(registry).decode()
    return {
        (sample.name.removeprefix("streamcal_transformer_"), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_says_what_the_transformer_does() -> None:
    source = MemorySource()
    source.publish("clicks", encode(new_document("clicks", 7, Platt(1.0, 0.5), at_ms=5_000)))
    source.publish("day-0", encode(new_document("day-0", 1, Platt(1.0, 0.5), at_ms=0)))
    source.publish("clicks", b"damaged")
    registry = CollectorRegistry()
    with CalibrationTransformer(source, stale_after_s=60.0, clock=lambda: 65.0) as transformer:
        TransformerCollector(transformer, registry)
        transformer.transform(0.5, "clicks")
        transformer.transform([0.5, 0.25], "clicks")
        transformer.transform(0.5, "other")
        values = scraped(registry)
    assert values["map_version", "clicks"] == 7
    assert values["map_age_seconds", "clicks"] == 60.0
    assert ("map_age_seconds", "day-0") not in values
    assert values["scores_total", "clicks"] == 3
    assert values["scores_total", "day-0"] == 0
    assert {reason: values["problems_total", reason] for reason in PROBLEMS} == {
        **dict.fromkeys(PROBLEMS, 0),
        "corrupt": 1,
    }
    assert {reason: values["unmapped_total", reason] for reason in UNMAPPED} == {
        **dict.fromkeys(UNMAPPED, 0),
        "unknown_model": 1,
    }
    assert values["stale", ""] == 0
    assert values["source_silence_seconds", ""] == 0
    assert values["following", ""] == 1


def test_prometheus_is_loaded_by_its_module_alone() -> None:
    code = "import sys, streamcal.transform; print('prometheus_client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
