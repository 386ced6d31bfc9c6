"""Chromium for the tests of the pages: Debian's, driven by Playwright; nothing is downloaded.

Without it the tests are skipped, with the reason; under CI that is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ARTEFACTS = Path(__file__).parent / "artefacts"
PLACES = ("chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium")


def missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what}; under CI the tests of the pages must run")
    pytest.skip(what)


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """The running browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed (it is in requirements/dev.lock)")
    path = next((found for place in PLACES if (found := shutil.which(place))), None)
    if path is None:
        missing("no Chromium on this machine (Debian, Ubuntu: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Looked:
    """A page, and what it did while it was looked at.

    Attributes
    ----------
    page : playwright.sync_api.Page
    complaints : list of str
        Errors and warnings of the console, uncaught exceptions, refusals of the content security policy.
    asked : list of str
        Every address it asked for.
    """

    def __init__(self, page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda said: said.type in {"error", "warning"} and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))


@pytest.fixture
def look(chromium) -> Callable[..., object]:
    """Open an address in a browser of its own: ``with look(url, dark=True, width=390) as looked``."""

    @contextmanager
    def open_(url: str, *, dark: bool = False, width: int = 1280, height: int = 900, bypass_csp: bool = False):
        context = chromium.new_context(
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": height},
            bypass_csp=bypass_csp,
        )
        context.set_default_timeout(20_000)
        looked = Looked(context.new_page())
        looked.page.goto(url)
        yield looked
        context.close()

    return open_


@pytest.fixture
def keep() -> Callable[..., None]:
    """Keep a picture of the whole page under `artefacts/`."""

    def shoot(page, name: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=str(ARTEFACTS / f"{name}.png"), full_page=True)

    return shoot
