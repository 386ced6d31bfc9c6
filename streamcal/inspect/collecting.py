"""Both samples, taken far enough back that outcomes can find their predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamcal.inspect.broker import TailReader
from streamcal.inspect.sample import Sample

__all__ = ["collect"]

_ENOUGH: Final = 0.95
_STEPS: Final = 4
"""Doublings of the prediction sample: sixteen times the first, or what time allows."""


def collect(
    reader: TailReader,
    topics: tuple[str, str],
    most: int,
    matched: Callable[[Sample, Sample], float],
) -> tuple[Sample, Sample]:
    """Read the ends of both topics; go further back in the predictions while too few outcomes are matched.

    Parameters
    ----------
    reader : TailReader
    topics : pair of str
        Names of predictions and outcomes.
    most : int
        Records of each topic to begin with.
    matched : callable
        Share of the outcomes of which something can be said that find their prediction; negative where nothing can.
    """
    outcomes = reader.tail(topics[1], most)
    predictions = reader.tail(topics[0], most)
    for step in range(_STEPS):
        if predictions.complete or not reader.may_read_on or matched(predictions, outcomes) >= _ENOUGH:
            break
        predictions = predictions.before(reader.earlier(topics[0], most * 2**step))
    return predictions, outcomes
