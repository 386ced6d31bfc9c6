"""The code blocks of the transformer's page run, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks, run
from prometheus_client import CollectorRegistry

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import PROBLEMS, UNMAPPED, CalibrationTransformer, MemorySource
from streamcal.transform.metrics import TransformerCollector

HOW_TO = ROOT / "docs" / "how-to"
PAGE = HOW_TO / "transformer.md"


@pytest.mark.parametrize(
    "page", [PAGE, HOW_TO / "initial-map.md", ROOT / "docs" / "map-format.md"], ids=lambda p: p.stem
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_code_blocks_run(tmp_path: Path) -> None:
    document = new_document("clicks", 3, Platt(0.6, -0.2), at_ms=0)
    (tmp_path / "clicks-map.json").write_bytes(encode(document))
    found = [block for block in blocks(PAGE) if block.runs]
    assert len(found) >= 4
    for block in found:
        run(block, tmp_path)


def test_the_page_names_every_reason_and_every_metric() -> None:
    registry = CollectorRegistry()
    with CalibrationTransformer(MemorySource()) as transformer:
        TransformerCollector(transformer, registry)
        metrics = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    text = PAGE.read_text()
    for name in (*PROBLEMS, *UNMAPPED, *metrics):
        assert f"`{name}`" in text
    assert set(re.findall(r"`(streamcal_transformer_\w+)`", text)) == metrics
