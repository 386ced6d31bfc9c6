"""How labels become known, model by model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ModelRules", "RuleTable"]


@dataclass(frozen=True, slots=True)
class ModelRules:
    """How labels of one model become known."""

    horizon_ms: int
    positives_only: bool


class RuleTable:
    """The rules as columns by model index.

    Parameters
    ----------
    rules : callable
        Model index to `ModelRules`.

    Attributes
    ----------
    horizon : int64 array
    at_maturity : bool array
        Whether labels are known at maturity only.
    """

    def __init__(self, rules: Callable[[int], ModelRules]) -> None:
        self._rules = rules
        self.horizon: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.at_maturity: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)

    def know(self, highest: int) -> None:
        """Have entries for every model index up to `highest`."""
        if highest < len(self.horizon):
            return
        rules = [self._rules(model) for model in range(len(self.horizon), highest + 1)]
        self.horizon = np.append(self.horizon, np.array([rule.horizon_ms for rule in rules], dtype=np.int64))
        at_maturity = np.array([rule.positives_only for rule in rules], dtype=np.bool_)
        self.at_maturity = np.append(self.at_maturity, at_maturity)
