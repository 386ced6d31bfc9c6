"""What the README, the tutorial and the how-tos show is run, and what they link to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks, run

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *HOW_TO]
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
LINKING = [*PAGES, *REFERENCE, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "deploy" / "README.md"]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    if page.name == "upgrading.md":  # speaks of a configuration that is there
        (tmp_path / "my.yaml").write_text("", encoding="utf-8")
    for block in blocks(page):
        if block.runs:
            run(block, tmp_path)


def anchors(page: Path) -> set[str]:
    """Anchors as GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_the_reference_is_what_the_code_makes() -> None:
    command = [sys.executable, ROOT / "docs" / "generate", "--check"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
