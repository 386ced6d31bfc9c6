"""What the daemon serves over HTTP, made from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import ASGIApp

from streamcal import __version__
from streamcal.errors import StreamcalError
from streamcal.runtime.config import Config
from streamcal.runtime.config_sections import Serve
from streamcal.serve.app import application
from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector
from streamcal.serve.http import HttpServer, Tls
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import ExportSettings
from streamcal.serve.process_counters import ProcessCounters
from streamcal.serve.requests import Requests
from streamcal.serve.sources import Access, Sources
from streamcal.stats.layout import LAYOUT_ID

__all__ = ["http_application", "http_server"]

_SHORTEST_TOKEN = 16
"""Characters of the admin token: what is shorter can be guessed over the network."""


def http_application(
    config: Config,
    holder: SnapshotHolder,
    readiness: Readiness,
    commits: CommitRecorder,
    *,
    counts: Callable[[], Mapping[str, Any]] | None = None,
    requests: Requests | None = None,
    counters: ProcessCounters | None = None,
) -> ASGIApp:
    """Metrics, probes, status page and API.

    Parameters
    ----------
    config : Config
    holder, readiness, commits
        Where the loop shows what it has.
    counts : callable, optional
        Counts for audit; see `streamcal.runtime.counts_desk`.
    requests : Requests, optional
        Where requests to change maps go; None: they are answered with a refusal.
    counters : ProcessCounters, optional
        What the process has done, for the metrics.

    Raises
    ------
    StreamcalError
        The admin token cannot be read, or is none.
    """
    build = BuildInfo(__version__, LAYOUT_ID, config.hash())
    metrics = config.metrics
    settings = ExportSettings(export=metrics.export, ece_bins=metrics.ece_bins, max_series=metrics.max_series)
    exporter = Exporter(holder, settings, ProcessCollector(build, readiness, commits, counters))
    sources = Sources(exporter, holder, readiness, __version__, counts=counts, requests=requests)
    hosts = (*config.serve.allowed_hosts, config.serve.host)
    return application(sources, Access(allowed_hosts=hosts, admin_token=_admin_token(config.serve)))


def http_server(app: ASGIApp, serve: Serve, port: int | None = None) -> HttpServer:
    """`app` on the configured address; `port` instead of the configured one.

    Raises
    ------
    ServeError
        The address cannot be bound, or the certificate cannot be used.
    """
    tls = None
    if serve.tls_cert_file is not None and serve.tls_key_file is not None:
        tls = Tls(serve.tls_cert_file, serve.tls_key_file)
    return HttpServer(app, serve.host, serve.port if port is None else port, tls=tls)


def _admin_token(serve: Serve) -> str | None:
    """The token, never shown; its file may end in a line feed."""
    if serve.admin_token_file is None:
        return None
    where, hint = "serve.admin_token_file", "write a long random token into it, such as 32 bytes in hex"
    try:
        token = serve.admin_token_file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise StreamcalError(f"the file cannot be read: {error.strerror}", where=where, hint=hint) from error
    except UnicodeDecodeError as error:
        raise StreamcalError("the token must be ASCII text", where=where, hint=hint) from error
    if len(token) < _SHORTEST_TOKEN or any(character.isspace() for character in token):
        what = f"the token must be one word of at least {_SHORTEST_TOKEN} characters"
        raise StreamcalError(what, where=where, hint=hint)
    return token
