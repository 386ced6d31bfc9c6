"""Counts as they travel from sources to the aggregator: absolute, by pane, idempotent."""
