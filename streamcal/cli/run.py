"""`streamcal run`: the daemon."""

from __future__ import annotations

from streamcal.cli.options import ConfigOption, configuration

__all__ = ["run"]


def run(config: ConfigOption = None) -> None:
    """Run the daemon on Kafka until SIGTERM or Ctrl-C.

    Joins, counts, refits, and serves the figures to Prometheus.
    """
    settings = configuration(config, kafka=True)
    from streamcal.runtime import daemon

    daemon.run(settings)
