"""The templates of both pages: everything put into them is escaped, and a name that is not given is an error."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

__all__ = ["environment", "template"]


@cache
def environment() -> Environment:
    """Where templates are loaded from."""
    return Environment(
        loader=PackageLoader("streamcal.serve", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template(name: str) -> Template:
    """The template `name`."""
    return environment().get_template(name)
