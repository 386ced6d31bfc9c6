"""Which of the lines that the client logs says why there is no connection."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import pytest
from kafka.errors import KafkaTimeoutError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_connecting import connected

HUNG = "Bootstrap connection to bootstrap-0 failed: KafkaConnectionError: socket disconnected"
LIMIT = "Bootstrap connection to bootstrap-0 failed: [Error 7] RequestTimedOutError: Request timed out after 74 ms"
AWAY = "Bootstrap connection to bootstrap-0 failed: ConnectionRefusedError"


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ([HUNG, HUNG], "the broker hangs up: socket disconnected"),
        ([HUNG, LIMIT], "the broker hangs up: socket disconnected"),
        ([HUNG, AWAY], "no broker answers within 12 s: Bootstrap connection to bootstrap-0 failed: ConnectionRefused"),
        ([AWAY, LIMIT], "no broker answers within 12 s: Bootstrap connection to bootstrap-0 failed: ConnectionRefused"),
        ([LIMIT], "no broker answers within 12 s: Bootstrap connection to bootstrap-0 failed: [Error 7]"),
        ([], "no broker answers within 12 s: KafkaTimeoutError"),
    ],
)
def test_the_last_attempt_that_had_its_time_says_why(said: list[str], what: str) -> None:
    def fails(_: float) -> NoReturn:
        for line in said:
            logging.getLogger("kafka.net.manager").log(logging.WARNING, line)
        raise KafkaTimeoutError

    with pytest.raises(BrokerError) as raised:
        _: Any = connected(fails, "localhost:1")
    assert raised.value.what.startswith(what)
