"""A map with corrections per segment, applied to live scores by their dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import CalibrationTransformer, MemorySource

SEGMENTS = {"country=GB": {"offset": 0.5}, "country=GB,device=ios": {"offset": -1.0, "slope": 2.0}}


def odds(p: float) -> float:
    return float(np.log(p / (1 - p)))


def served(p: float, offset: float, slope: float) -> float:
    """By the definition: the entry moves the logit of what the family serves."""
    family = 0.8 * odds(p) + 0.1
    return float(1 / (1 + np.exp(-(slope * family + offset))))


@pytest.fixture
def transformer() -> CalibrationTransformer:
    source = MemorySource()
    source.publish("default", encode(new_document("default", 3, Platt(0.8, 0.1), at_ms=0, segments=SEGMENTS)))
    return CalibrationTransformer(source)


@pytest.mark.parametrize(
    ("dimensions", "offset", "slope"),
    [
        ({"country": "GB", "device": "ios"}, -1.0, 2.0),
        ({"country": "GB", "device": "web"}, 0.5, 1.0),
        ({"country": "FR", "device": "ios"}, 0.0, 1.0),
        (None, 0.0, 1.0),
    ],
)
def test_the_finest_cut_with_an_entry_decides(
    transformer: CalibrationTransformer, dimensions: dict[str, str] | None, offset: float, slope: float
) -> None:
    with transformer:
        value, version = transformer.transform(0.3, segments=dimensions)
        array, _ = transformer.transform([0.3, 0.9], segments=dimensions)
    assert version == 3
    assert value == pytest.approx(served(0.3, offset, slope), abs=1e-14)
    assert array == pytest.approx([served(0.3, offset, slope), served(0.9, offset, slope)], abs=1e-14)


def test_columns_of_dimensions_give_each_score_its_own_entry(transformer: CalibrationTransformer) -> None:
    with transformer:
        values, _ = transformer.transform([0.3, 0.3], segments={"country": ["GB", "FR"], "device": "web"})
        with pytest.raises(ValueError, match="2 scores"):
            transformer.transform([0.3, 0.3], segments={"country": ["GB"]})
    assert values == pytest.approx([served(0.3, 0.5, 1.0), served(0.3, 0.0, 1.0)], abs=1e-14)
