"""Why a first connection failed, in one line, and what to do.

The client's own error is a time-out that does not say what failed; its log does, several times over and not always with
the same words: a refused password is now and then only "socket disconnected", since the broker hangs up behind its
answer. So all it logs while it tries is collected, and the most telling line taken.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kafka.errors import KafkaConfigurationError, KafkaError

from streamcal.errors import BrokerError

__all__ = ["CONNECT_S", "connected"]

CONNECT_S: Final = 12.0
"""Longest wait for a first answer of any broker: a wrong address is known in well under 15 s."""

_FIRST_S: Final = 3.0
"""After so long a reason that time does not heal is told at once: each further attempt is one more wrong password."""


class _Cause(NamedTuple):
    """What the client logs, what it means, what to do."""

    pattern: re.Pattern[str]
    meaning: str
    hint: str


def _cause(pattern: str, meaning: str, hint: str) -> _Cause:
    return _Cause(re.compile(pattern), meaning, hint)


_CAUSES: Final = (
    _cause(
        r"UnsupportedSaslMechanismError: (?P<detail>.*)",
        "the broker does not take this sasl_mechanism",
        "set kafka.security.sasl_mechanism to one it offers there",
    ),
    _cause(
        r"SaslAuthenticationFailedError: (?P<detail>[^:()]*)",
        "the broker refuses this user",
        "check kafka.security.sasl_username, the password (sasl_password_file) or token, and that the user exists for "
        "this sasl_mechanism",
    ),
    _cause(
        r"(?P<detail>\S+ gave no token.*)",
        "there is no token to authenticate with",
        "check the function kafka.security.sasl_oauth_token_provider",
    ),
    _cause(
        r"certificate verify failed: (?P<detail>.*(?:mismatch|is not valid for)[^(]*)",
        "the broker's certificate is for another name",
        "use a name of the certificate, in kafka.bootstrap_servers and in the broker's advertised.listeners; or "
        "accept any name with kafka.security.ssl_check_hostname: false",
    ),
    _cause(
        r"certificate verify failed: (?P<detail>[^(]*expired[^(]*)",
        "the broker's certificate has expired",
        "renew it, or check the clock of this machine",
    ),
    _cause(
        r"certificate verify failed: (?P<detail>[^(]*)",
        "the broker's certificate is not trusted",
        "set kafka.security.ssl_cafile to the certificate of the authority that signed it",
    ),
    _cause(
        r"(?P<detail>(?:sslv3 alert )?bad certificate|certificate required|unknown ca|certificate unknown)",
        "the broker refuses our certificate, or wants one",
        "set kafka.security.ssl_certfile and ssl_keyfile to a certificate that the broker trusts",
    ),
    _cause(
        r"(?P<detail>Invalid frame length: 3525\d+)",  # 0x1503: a TLS alert, read as a length
        "the broker speaks TLS there",
        "set kafka.security.security_protocol to SSL or SASL_SSL",
    ),
    _cause(
        r"Handshake failed: .*(?P<detail>EOF occurred|WRONG_VERSION_NUMBER|wrong version number)",
        "the broker does not speak TLS there",
        "set kafka.security.security_protocol to PLAINTEXT or SASL_PLAINTEXT, or connect to its port for TLS",
    ),
)
"""Most telling first; none of them is healed by trying again."""

_OUR_LIMIT: Final = "RequestTimedOutError"
"""What an attempt ends with that began right before our time was over; it says nothing of the broker."""

_HANGS_UP: Final = _cause(
    r"(?P<detail>socket disconnected)",
    "the broker hangs up",
    "check that kafka.security.security_protocol is what this port speaks, and kafka.security.sasl_username with its "
    "password",
)
"""What is left of an answer that got lost; a broker that is just starting does the same for a moment."""


def connected(make: Callable[[float], Any], servers: str) -> Any:
    """The client that `make` makes when given how long it may try (seconds).

    Raises
    ------
    BrokerError
        No broker answers, or it does not let us in: why, and what to do.
    KafkaConfigurationError
        As `make` raises it.
    """
    said: list[str] = []
    last: Exception | None = None
    for limit_s in (_FIRST_S, CONNECT_S - _FIRST_S):
        with _listening(said):
            try:
                return make(limit_s)
            except KafkaConfigurationError:
                raise
            except (KafkaError, OSError) as error:
                last = error
        if found := _known(said):
            cause, detail = found
            raise BrokerError(f"{cause.meaning}: {detail}", where=servers, hint=cause.hint) from last
    told = [line for line in said if _OUR_LIMIT not in line] or said
    if told and (hung := _matching(_HANGS_UP, told[-1:])):
        raise BrokerError(f"{_HANGS_UP.meaning}: {hung}", where=servers, hint=_HANGS_UP.hint) from last
    reason = told[-1] if told else str(last)
    hint = "check kafka.bootstrap_servers, the network, and kafka.security"
    raise BrokerError(f"no broker answers within {CONNECT_S:.0f} s: {reason}", where=servers, hint=hint) from last


def _known(said: Sequence[str]) -> tuple[_Cause, str] | None:
    matches = ((cause, _matching(cause, said)) for cause in _CAUSES)
    return next(((cause, detail) for cause, detail in matches if detail is not None), None)


def _matching(cause: _Cause, said: Sequence[str]) -> str | None:
    """Detail of the first line that has this cause."""
    found = next(filter(None, map(cause.pattern.search, said)), None)
    return None if found is None else found["detail"].strip().rstrip(".")


@contextlib.contextmanager
def _listening(said: list[str]) -> Iterator[None]:
    """Collect what the client logs as going wrong while it connects."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "failed" in str(record.msg) and "Bootstrap failed" not in str(record.msg):
                said.append(record.getMessage().split(" (backoff", 1)[0])

    logger, collector = logging.getLogger("kafka.net.manager"), Collector(logging.WARNING)
    logger.addHandler(collector)
    try:
        yield
    finally:
        logger.removeHandler(collector)
