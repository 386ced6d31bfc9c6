"""Errors a person can act on: each says what happened, where, and what to do next.

The pure core raises these (or crashes on a broken promise); only the command line turns them into a
line of text and an exit code.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "BrokerError",
    "ConfigError",
    "DaemonError",
    "InputFileError",
    "MapDocumentError",
    "ServeError",
    "StateFormatError",
    "StateLimitError",
    "StreamcalError",
]


class StreamcalError(Exception):
    """A failure that ends a command with one clear message.

    Parameters
    ----------
    what : str
        What happened, with the offending value.
    where : str
        File, topic, key or address concerned; empty when the message names it.
    hint : str
        What the operator can do about it.

    Attributes
    ----------
    exit_code : int
        Process exit code the command line uses.
    retryable : bool
        Whether doing the same again later can help.
    """

    exit_code = 1
    retryable = False

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.hint}" if self.hint else text


class ConfigError(StreamcalError):
    """The configuration cannot be used; lists every problem at once.

    Parameters
    ----------
    problems : sequence of (str, str)
        Dotted key and what is wrong with it.
    where : str
        The file the configuration came from.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[tuple[str, str]], *, where: str = "") -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  {key}: {text}" for key, text in self.problems)
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the configuration{lines}", where=where)


class InputFileError(StreamcalError):
    """A file given to a command cannot be read to its end."""

    exit_code = 3


class BrokerError(StreamcalError):
    """Kafka cannot be reached, refuses, or lacks a topic."""

    exit_code = 4
    retryable = True


class ServeError(StreamcalError):
    """The HTTP address cannot be served on."""

    exit_code = 5


class MapDocumentError(StreamcalError):
    """A map document cannot be decoded, verified or applied."""

    exit_code = 6


class StateFormatError(StreamcalError):
    """A saved state that cannot be taken up: damaged, of a later release, or of other settings."""

    exit_code = 8


class StateLimitError(StreamcalError):
    """A full cap or an integer range that the state would pass; intake stops, nothing is dropped."""

    exit_code = 7


class DaemonError(StreamcalError):
    """The daemon that was to be asked does not answer, or not yet."""

    exit_code = 10
    retryable = True
