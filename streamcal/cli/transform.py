"""`streamcal transform`: raw scores of one topic, served to another, exactly once."""

from __future__ import annotations

from streamcal.cli.options import ConfigOption, configuration

__all__ = ["transform"]


def transform(config: ConfigOption = None) -> None:
    """Serve a topic of raw scores until SIGTERM or Ctrl-C.

    Applies the calibration maps to each prediction of transform.input and writes it to transform.output, once.
    Ends with an exit code other than 0 when Kafka fails it; start it again, and it goes on where it was.
    """
    settings = configuration(config, kafka=True)

    import sys

    from streamcal.cli.stopping import StopRequest
    from streamcal.runtime.logging_setup import configure_logging
    from streamcal.runtime.transforming.serving import serve

    configure_logging(sys.stdout)
    with StopRequest() as stop:
        serve(settings, lambda: stop.made)
