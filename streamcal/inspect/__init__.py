"""Looks at topics as they are: what `streamcal doctor` reports and what `streamcal init` proposes."""
