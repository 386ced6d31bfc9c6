"""`streamcal transform`: read raw scores, serve them, write them, each record once, until told to stop.

The loop is one line long: a batch, rewritten, in one transaction with the offsets behind it. All that makes it exactly
once is in `membership` (what is read, as whom), `transaction` (what is written, with which offsets) and in what happens
when anything fails: the process ends with an exit code that is not 0, and whoever supervises it starts the next, which
goes on after the last transaction that was committed.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError

from streamcal import __version__
from streamcal.errors import BrokerError, StreamcalError
from streamcal.maps.signing import Verifier
from streamcal.runtime.config import DEFAULT_MODEL, Config
from streamcal.runtime.logging_setup import relay_client_warnings
from streamcal.runtime.logs.kafka_errors import refusal
from streamcal.runtime.map_signing import map_signing
from streamcal.runtime.transforming.clients import TransformClients
from streamcal.runtime.transforming.membership import Batch, Membership
from streamcal.runtime.transforming.metrics import RecordsCollector, exposed
from streamcal.runtime.transforming.plan import Plan, make_plan
from streamcal.runtime.transforming.topics import check_counts, check_topics
from streamcal.runtime.transforming.transaction import Outgoing, Transactions
from streamcal.runtime.transforming.watchdog import Watchdog
from streamcal.transform import CalibrationTransformer
from streamcal.transform.stream.rewrite import REASONS, Rewriter
from streamcal.transform.stream.rewrite_classes import ApplyClasses

__all__ = ["serve"]

_WATCHDOG_S: Final = 60.0
"""Longest call of the client: twice what a transaction may take, so that the broker's own limits speak first."""

_POLL_S: Final = 0.5
"""Longest wait for a first record, and so for noticing that a stop was asked for."""

_MAPS_S: Final = 50.0
"""Longest wait for the maps published so far: thousands of documents take about a second."""

_TELL_S: Final = 60.0

log = structlog.get_logger(__name__)


def serve(config: Config, stopped: Callable[[], bool]) -> Counter[str]:
    """Serve the input topic until `stopped()`; the batch in hand is committed first.

    Parameters
    ----------
    config : Config
        Loaded for Kafka.
    stopped : callable
        Asked between batches, at least twice a second.

    Returns
    -------
    Counter
        Records by what became of them (`Rewritten.outcome`).

    Raises
    ------
    ConfigError
        `transform.input` is missing, or keys contradict each other.
    BrokerError
        Kafka cannot be reached, lacks a topic, refuses, or a transaction failed.
    StreamcalError
        A record cannot be served and `transform.invalid` is ``stop``.
    """
    plan = make_plan(config)
    clients = TransformClients(config.kafka, plan)
    verifier = map_signing(config.maps).verifier
    check_topics(clients, plan)
    with contextlib.ExitStack() as stack:
        watchdog = stack.enter_context(Watchdog(_WATCHDOG_S, exit_code=BrokerError.exit_code))
        transformer = _transformer(clients, plan, watchdog, verifier)
        stack.callback(_close, transformer, watchdog)
        # The transactional id before the group: offsets that a predecessor left in doubt are settled by it.
        transactions = Transactions(clients.transactional_producer(), plan, watchdog=watchdog, where=clients.servers)
        stack.callback(transactions.close)
        transactions.open()
        consumer = clients.input_consumer()

        def check() -> None:
            read = len(consumer.partitions_for_topic(plan.input) or ())
            check_counts(plan, read, transactions.partitions(), clients.servers)

        try:
            membership = Membership(consumer, plan, check=check, watchdog=watchdog, where=clients.servers)
            stack.callback(membership.close)
            serving = _Serving(plan, membership, transactions, transformer)
            relay_client_warnings(lambda: serving.running)
            records = RecordsCollector(lambda: serving.counts, lambda: serving.lag)
            stack.enter_context(exposed(records, transformer, config.serve.host, config.transform.metrics_port))
            return serving.run(stopped)
        except KafkaError as error:
            raise refusal(error, clients.servers) from error


def _transformer(
    clients: TransformClients, plan: Plan, watchdog: Watchdog, verifier: Verifier | None
) -> CalibrationTransformer:
    """Follows the maps topic, and knows what was published so far."""
    with watchdog.over(f"reading topic {plan.maps}"):
        transformer = CalibrationTransformer(clients.maps(), verifier=verifier)
        if transformer.wait_caught_up(_MAPS_S):
            return transformer
        transformer.close()
    message = f"topic {plan.maps!r} was not read to its end within {_MAPS_S:.0f} s"
    raise BrokerError(message, where=clients.servers, hint="check the broker and topics.maps")


def _by_class(transformer: CalibrationTransformer) -> ApplyClasses:
    """`transform_classes` of one prediction, whose answer is a mapping by class."""

    def apply(
        scores: Mapping[str, float], model: str, classes: Sequence[str], segments: Mapping[str, str] | None
    ) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        served, versions = transformer.transform_classes(scores, model, classes, segments)
        assert isinstance(served, dict)  # as the scores
        return served, versions

    return apply


def _close(transformer: CalibrationTransformer, watchdog: Watchdog) -> None:
    with watchdog.over("leaving the maps topic"):
        transformer.close()


class _Serving:
    """The loop, and what it tells of itself.

    Attributes
    ----------
    running : bool
        Whether records are read; before and after, what the client complains of is of no use to anybody.
    counts : Counter
        Records by what became of them; replaced and never altered, so any thread may hold it.
    lag : int
        Records not yet read, as of the last batch.
    """

    def __init__(
        self, plan: Plan, membership: Membership, transactions: Transactions, transformer: CalibrationTransformer
    ) -> None:
        self._plan = plan
        self._membership = membership
        self._transactions = transactions
        self._transformer = transformer
        self._rewrite = Rewriter(
            plan.fields,
            transformer.transform,
            dimensions=plan.dimensions,
            filters=plan.filters,
            default_model=DEFAULT_MODEL,
            max_bytes=plan.max_bytes,
            classes=plan.classes,
            apply_classes=_by_class(transformer) if plan.classes else None,
        )
        self.counts: Counter[str] = Counter()
        self.lag = 0
        self._told_at = time.monotonic()
        self._problems: Mapping[str, int] = {}
        self.running = False

    def run(self, stopped: Callable[[], bool]) -> Counter[str]:
        plan = self._plan
        log.info(
            "transforming",
            version=__version__,
            input=plan.input,
            output=plan.output,
            group=plan.group_id,
            instance=plan.instance_id,
            maps=self._maps(),
        )
        self.running = True
        try:
            while not stopped():
                batch = self._membership.batch(_POLL_S)
                if batch is not None:
                    self._pass_on(batch)
                self.lag = self._membership.lag()
                if time.monotonic() - self._told_at >= _TELL_S:
                    self._tell("transformed")
        finally:
            self.running = False
        self._tell("stopped")
        return self.counts

    def _pass_on(self, batch: Batch) -> None:
        outgoing, counts, problem = self._rewritten(batch)
        if problem is not None:
            batch = self._up_to(batch, outgoing)
        if batch.offsets:
            self._transactions.commit(outgoing, batch)
            self._membership.committed(batch)
            self.counts = self.counts + counts
        if problem is not None:
            raise problem

    def _rewritten(self, batch: Batch) -> tuple[list[Outgoing], Counter[str], StreamcalError | None]:
        """What to write, what became of it, and the record at which to stop, if any."""
        outgoing: list[Outgoing] = []
        counts: Counter[str] = Counter()
        for record in itertools.chain.from_iterable(batch.records.values()):
            value, headers, outcome = self._rewrite(record)
            if self._plan.stop_at_invalid and outcome in REASONS:
                return outgoing, counts, self._refusal(record, outcome)
            counts[outcome] += 1
            outgoing.append(Outgoing(record.key, value, headers, record.partition, record.timestamp, record.offset))
        return outgoing, counts, None

    def _up_to(self, batch: Batch, outgoing: list[Outgoing]) -> Batch:
        """The part of `batch` that was rewritten."""
        offsets = {TopicPartition(self._plan.input, one.partition): one.offset + 1 for one in outgoing}
        return Batch(batch.records, offsets, batch.member)

    def _refusal(self, record: Any, reason: str) -> StreamcalError:
        where = f"topic {self._plan.input}, partition {record.partition}, offset {record.offset}"
        hint = "mend its producer and skip it with kafka-consumer-groups, or set transform.invalid to pass"
        return StreamcalError(f"the record cannot be served: {reason}", where=where, hint=hint)

    def _maps(self) -> dict[str, int]:
        return {model: status.version for model, status in self._transformer.status().maps.items()}

    def _tell(self, event: str) -> None:
        """One line with all totals since the start."""
        self._told_at = time.monotonic()
        status = self._transformer.status()
        log.info(event, records=dict(self.counts), lag=self.lag, maps=self._maps())
        if status.problems != self._problems:
            self._problems = status.problems
            log.warning("map updates not taken", problems=dict(status.problems), last=status.last_problem)
