"""The table of configuration changes under existing state, in docs/how-to/state.md between two comments."""

from __future__ import annotations

from typing import Final

from tables import table

from streamcal.state.about import CHANGES

__all__ = ["BEGIN", "END", "with_changes"]

BEGIN: Final = "<!-- config changes: made by `python docs/generate` -->\n"
END: Final = "<!-- end of config changes -->\n"


def with_changes(page: str) -> str:
    """The page with the table as the code has it."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = [(_shown(rule.key), rule.verdict, rule.why) for rule in CHANGES]
    return head + BEGIN + "\n" + table(("setting", "under existing state", "because"), rows) + "\n" + END + tail


def _shown(key: str) -> str:
    return key.strip("()") if key.startswith("(") else f"`{key}`"
