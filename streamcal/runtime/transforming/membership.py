"""The input topic, read as a member of a group: what is handed out is either committed or read again.

Rules
-----
- Nothing is in hand between two batches: the loop has committed a batch before it asks for the next. So whenever the
  assignment changes, every partition is simply placed where the group's offsets say.
- Those offsets are committed by transactions. The client asks for stable ones: where the transaction of a member that
  died has not ended, placing waits until the broker has ended it.
- Who we are in the group is noted right after the poll that gave the last record, and goes into the transaction. Later
  would be wrong twice over: a member that is thrown out forgets its generation, and a broker takes offsets without one
  unchecked; and one that joins anew between two polls has a generation by which others were given its partitions. So
  records in hand are thrown away, to be read again, as soon as partitions are revoked or the membership is not stable.
- A partition without a group offset begins where `kafka.start_from` says, and that place is committed before a record:
  else a member killed before its first commit would begin at a later `latest` and skip what came between.
- The rebalance listener runs on the client's own thread, where hardly any call is allowed: it notes, `poll` settles.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from kafka import ConsumerRebalanceListener
from kafka.errors import FencedInstanceIdError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka.structs import MemberState

from streamcal.runtime.logs.kafka_client_faults import position
from streamcal.runtime.logs.kafka_clients import admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import Trouble, out_of_range, passes, refusal
from streamcal.runtime.transforming.failures import fenced
from streamcal.runtime.transforming.plan import Plan
from streamcal.runtime.transforming.watchdog import Watchdog

__all__ = ["Batch", "Membership"]

_PAUSE_S: Final = 0.2
"""Pause after an error that comes back at once, so that trying again does not spin."""

_CLOSE_MS: Final = 5_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records to serve and where the group stands after them.

    Attributes
    ----------
    records : mapping
        Topic partition to records, in log order; may be empty.
    offsets : mapping
        Topic partition to the offset of the next record, of every partition that moved.
    member : ConsumerGroupMetadata
        Who read them.
    """

    records: Mapping[Any, list[Any]]
    offsets: Mapping[Any, int]
    member: Any


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client ships no types
    """Notes that partitions move; nothing else may be done on the client's thread."""

    def __init__(self) -> None:
        self.moved = False

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:  # noqa: ARG002
        """Note it: what was read as a member of before is not ours to write."""
        self.moved = True

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:  # noqa: ARG002
        """Note it."""
        self.moved = True

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:  # noqa: ARG002
        """Note it."""
        self.moved = True


class Membership:
    """Reads the partitions that the group gives to this member; used from one thread.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        Closed here.
    plan : Plan
    check : callable
        Called at each assignment; may raise.
    watchdog : Watchdog
    where : str
        For messages.
    """

    def __init__(self, consumer: Any, plan: Plan, *, check: Callable[[], None], watchdog: Watchdog, where: str) -> None:
        self._consumer = consumer
        self._plan = plan
        self._check = check
        self._watchdog = watchdog
        self._where = where
        self._most: int = consumer.config["max_poll_records"]
        self._listener = _Listener()
        self._trouble = Trouble()
        self._committed: dict[Any, int] = {}
        # Known before joining: else the first assignment is made without partitions, and a second follows.
        consumer.partitions_for_topic(plan.input)
        consumer.subscribe([plan.input], listener=self._listener)

    def batch(self, timeout_s: float) -> Batch | None:
        """What came within `timeout_s`, and what came soon after it; None when there is nothing to commit.

        Raises
        ------
        BrokerError
            Records that should follow are gone, or the broker refuses for good.
        """
        if self._listener.moved:
            return self._settled()
        taken = self._fetch(timeout_s)
        until = time.monotonic() + self._plan.gather_s
        while taken and (left := until - time.monotonic()) > 0 and sum(map(len, taken.values())) < self._most:
            for part, records in self._fetch(left).items():
                taken.setdefault(part, []).extend(records)
        return self._checked(taken) if taken else self._passed()

    def committed(self, batch: Batch) -> None:
        """Note that the transaction of `batch` was committed."""
        self._committed.update(batch.offsets)

    def lag(self) -> int:
        """Records not yet read, as far as the broker has told."""
        ends = {part: self._consumer.highwater(part) for part in self._committed if self._is_ours(part)}
        return sum(max(0, end - self._committed[part]) for part, end in ends.items() if end is not None)

    def close(self) -> None:
        """Leave the broker; a static member stays in the group until its session ends or it is back."""
        with self._watchdog.over("closing the consumer"), contextlib.suppress(KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)

    def _is_ours(self, part: Any) -> bool:
        return part in self._consumer.assignment()

    def _member(self) -> Any | None:
        """Who we are in the group; None between two memberships."""
        member = self._consumer.group_metadata()
        known = member.generation_id >= 0 and member.member_id and member.state is MemberState.STABLE
        return member if known else None

    def _checked(self, taken: Mapping[Any, list[Any]]) -> Batch | None:
        if self._listener.moved:
            return None
        member = self._member()
        if member is None or not taken.keys() <= self._committed.keys():
            self._listener.moved = True
            return None
        for part, records in taken.items():
            # The client's promise; a broken one would be written twice, or out of order, and nobody would know.
            assert records[0].offset >= self._committed[part], f"{part} was read again from {records[0].offset}"
            assert all(a.offset < b.offset for a, b in itertools.pairwise(records)), f"{part} is disordered"
        offsets = {part: position(self._consumer, part, records[-1].offset + 1) for part, records in taken.items()}
        return Batch(taken, offsets, member)

    def _passed(self) -> Batch | None:
        """A batch without records, where something was passed that is none; see `position`."""
        if self._listener.moved:
            return None
        ours = {part: at for part, at in self._committed.items() if self._is_ours(part)}
        passed = {part: reached for part, at in ours.items() if (reached := position(self._consumer, part, at)) > at}
        member = self._member() if passed else None
        return None if member is None else Batch({}, passed, member)

    def _fetch(self, timeout_s: float) -> dict[Any, list[Any]]:
        try:
            with self._watchdog.over(f"reading topic {self._plan.input}"):
                fetched: dict[Any, list[Any]] = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        except NoOffsetForPartitionError:
            self._listener.moved = True  # partitions that were never committed: settling finds their start
        except OffsetOutOfRangeError as error:
            raise out_of_range(self._consumer, error, group_id=self._plan.group_id, where=self._where) from error
        except KafkaError as error:
            self._tolerate("poll failed; trying again", error)
            time.sleep(min(timeout_s, _PAUSE_S))
        else:
            return fetched
        return {}

    def _settled(self) -> Batch | None:
        """Place every partition of the present assignment; a batch without records where a start is to be committed."""
        self._listener.moved = False
        try:
            with self._watchdog.over("finding where to go on"):
                self._check()
                return self._place(sorted(self._consumer.assignment()))
        except KafkaError as error:
            self._listener.moved = True
            self._tolerate("the partitions assigned could not be placed; trying again", error)
            time.sleep(_PAUSE_S)
            return None

    def _place(self, assigned: list[Any]) -> Batch | None:
        # Noted before the offsets are asked for: a start is committed only if nobody else can have gone on meanwhile.
        member = self._member()
        self._committed = {}
        if member is None:
            return None  # the next poll joins, and is followed by an assignment
        stored = {part: self._consumer.committed(part, timeout_ms=admin_timeout_ms) for part in assigned}
        fresh = self._starts([part for part, offset in stored.items() if offset is None])
        placed = {part: fresh[part] if offset is None else offset for part, offset in stored.items()}
        for part, offset in placed.items():
            self._consumer.seek(part, offset)
        self._committed = placed
        log.info("partitions assigned", partitions=[part.partition for part in assigned])
        return Batch({}, fresh, member) if fresh else None

    def _starts(self, parts: list[Any]) -> dict[Any, int]:
        if not parts:
            return {}
        ends: dict[Any, int] = self._consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
        if self._plan.start == "latest":
            return ends
        if self._plan.start == "earliest":
            first: dict[Any, int] = self._consumer.beginning_offsets(parts, timeout_ms=admin_timeout_ms)
            return first
        found = self._consumer.offsets_for_times(dict.fromkeys(parts, self._plan.start), timeout_ms=admin_timeout_ms)
        return {part: ends[part] if found[part] is None else found[part].offset for part in parts}

    def _tolerate(self, what: str, error: KafkaError) -> None:
        """Go on after what time can heal; refuse the rest.

        Raises
        ------
        BrokerError
            Trying again cannot help.
        """
        if isinstance(error, FencedInstanceIdError):
            raise fenced(self._plan, self._where) from error
        if not passes(error):
            raise refusal(error, self._where) from error
        self._trouble.say(what, error)
