"""What the serving side is given: where to read from, and what it may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamcal.serve.exporter import Exporter
from streamcal.serve.live import Readiness, SnapshotHolder
from streamcal.serve.requests import Requests

__all__ = ["Access", "Sources"]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where answers come from; all of it may be read from any thread.

    Attributes
    ----------
    exporter, holder, readiness
    version : str
        Of the product.
    counts : callable or None
        Integer counts of the windows per model name, for audit; called in a serving thread, and may wait for the
        loop. NumPy arrays and scalars in it are written as plain JSON.
    requests : Requests or None
        Where requests to change maps go; None where nothing takes them.
    """

    exporter: Exporter
    holder: SnapshotHolder
    readiness: Readiness
    version: str
    counts: Callable[[], Mapping[str, Any]] | None = None
    requests: Requests | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask for what.

    Attributes
    ----------
    allowed_hosts : sequence of str
        Names under which the service may be asked, beside addresses and ``localhost``.
    admin_token : str or None
        What a request that changes something must carry; None: there are none, the service is read-only.
    """

    allowed_hosts: Sequence[str] = ()
    admin_token: str | None = None
