"""Log lines of commands that talk to a person: only what went wrong, on standard error."""

from __future__ import annotations

__all__ = ["log_warnings_only"]


def log_warnings_only() -> None:
    """Keep the runtime's log off the screen, warnings and errors aside."""
    import logging
    import sys

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
