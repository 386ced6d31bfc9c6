"""Write docs/reference from the code: ``python docs/generate``.

Exit code 1 from ``--check`` says that a committed page is not what the code makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cli_page import cli_page
from configuration_page import configuration_page
from http_page import http_page
from metrics_page import metrics_page
from python_page import python_page
from state_table import with_changes

ROOT: Final = Path(__file__).resolve().parents[2]
REFERENCE: Final = ROOT / "docs" / "reference"
STATE: Final = ROOT / "docs" / "how-to" / "state.md"
HEAD: Final = "<!-- Made by `python docs/generate` from the code; change that and run it again. -->\n\n"

PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration.md": lambda: configuration_page((ROOT / "config.yaml").read_text(encoding="utf-8")),
    "metrics.md": metrics_page,
    "cli.md": cli_page,
    "http.md": http_page,
    "python.md": python_page,
}


def main() -> int:
    """Write the pages, or with ``--check`` compare them."""
    stale = []
    pages = {REFERENCE / name: HEAD + make().rstrip("\n") + "\n" for name, make in PAGES.items()}
    pages[STATE] = with_changes(STATE.read_text(encoding="utf-8"))
    for path, text in pages.items():
        name = str(path.relative_to(ROOT))
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    if "--check" in sys.argv[1:] and stale:
        print(f"not up to date: {', '.join(stale)}; run python docs/generate", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
