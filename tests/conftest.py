"""Fixtures shared by all tests, and the last lines of a run: which families of tests were skipped, and why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
from flights_year import flight_files, flights_year  # noqa: F401 - fixtures
from kafka_broker import Broker, NoBrokerError, create_topics, find_broker

IN_CI = os.environ.get("CI") == "true"
"""There, a server that tests need and that is missing is a failure, not a skip."""


def unavailable(reason: str) -> NoReturn:
    """Skip for want of a server, or fail in CI."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def find_or_reason(folder: Path) -> Broker | str:
    """Find a broker, or say why there is none."""
    try:
        return find_broker(folder)
    except NoBrokerError as error:
        return str(error)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Give the one broker of this run."""
    found = find_or_reason(tmp_path_factory.mktemp("kafka"))
    if isinstance(found, str):
        unavailable(f"no Kafka broker: {found}")
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="session")
def kafka(shared_broker: Broker) -> str:
    """Give the bootstrap address of a running broker."""
    return shared_broker.bootstrap


@pytest.fixture
def kafka_broker(shared_broker: Broker) -> Iterator[Broker]:
    """Give the broker to a test that stops, kills and restarts it; it runs again for the tests after it."""
    if not shared_broker.ours:
        pytest.skip("the broker at STREAMCAL_TEST_KAFKA is not ours to restart")
    try:
        yield shared_broker
    finally:
        shared_broker.start()


@pytest.fixture
def topics(kafka: str) -> Callable[..., tuple[str, ...]]:
    """Make topics with names of their own: ``topics("predictions", "outcomes", partitions=4)`` gives their names."""

    def make(*names: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> tuple[str, ...]:
        unique = tuple(f"{name}-{uuid4().hex[:10]}" for name in names)
        create_topics(kafka, dict.fromkeys(unique, partitions), configs)
        return unique

    return make


FAMILIES = ("kafka",)
"""Markers of tests that need something from outside; a skip of any other test counts as ``other``."""


def skipped_families(reports: list[pytest.TestReport]) -> list[str]:
    """One line per family and reason, with how many tests it kept from running."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in reports:
        family = next((name for name in FAMILIES if name in report.keywords), "other")
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        counts[family, reason.removeprefix("Skipped: ")] += 1
    return [f"NOT RUN {family}: {count} tests: {reason}" for (family, reason), count in sorted(counts.items())]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Print the skipped families after everything else, where they are not overlooked."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        for line in skipped_families(reporter.getreports("skipped")):
            reporter.write_line(line, yellow=True)
