"""The status page: places for what its scripts ask of ``/api/v1``, and nothing that changes."""

from __future__ import annotations

from functools import cache

from streamcal.serve.assets import asset_url
from streamcal.serve.templates_env import template

__all__ = ["status_page"]


@cache
def status_page(version: str) -> str:
    """HTML of the page."""
    return template("status.html.j2").render(version=version, asset=asset_url)
