"""Families that compete for traffic, by what they cost; without what fits them, which is slow to import."""

from __future__ import annotations

from typing import Final

__all__ = ["COSTS", "DEFAULT_FAMILIES"]

COSTS: Final = ("identity", "intercept", "temperature", "platt", "beta", "girb", "cir", "isotonic", "tracking")
"""From the cheapest fix to the dearest. `prior` is none: it is configured, not fitted."""

DEFAULT_FAMILIES: Final = ("intercept", "platt", "cir")
"""A level, a line, a curve: chosen in `benchmarks/maps.py` (docs/maps.md has the table)."""
