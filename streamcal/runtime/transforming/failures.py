"""What a failed transaction means, in words that help; each ends the process, and the next one goes on before it."""

from __future__ import annotations

from typing import Final

from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InvalidProducerEpochError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)

from streamcal.errors import BrokerError
from streamcal.runtime.transforming.plan import Plan

__all__ = ["fenced", "transaction_failed", "unplaced"]

_AGAIN: Final = (
    "nothing of this transaction is visible to readers that read committed; the next start goes on before it"
)


def fenced(plan: Plan, where: str) -> BrokerError:
    """Another process has our name."""
    message = f"another process took over as instance {plan.instance_id!r} of group {plan.group_id!r}"
    hint = "if it is not this one's successor, give each process its own transform.instance_id"
    return BrokerError(message, where=where, hint=hint)


def transaction_failed(error: KafkaError, plan: Plan, where: str) -> BrokerError:
    """The error to end with after `error` in a transaction."""
    # An error that made the producer useless comes inside the next one.
    error = next((held for held in error.args if isinstance(held, KafkaError)), error)
    if isinstance(error, (FencedInstanceIdError, ProducerFencedError)):
        return fenced(plan, where)
    for kinds, what, hint in _KNOWN:
        if isinstance(error, kinds):
            named = what.format(
                output=plan.output, group=plan.group_id, id=plan.transactional_id, instance=plan.instance_id
            )
            return BrokerError(f"{named}: {error}", where=where, hint=f"{hint}; {_AGAIN}")
    return BrokerError(f"a transaction to topic {plan.output!r} failed: {error}", where=where, hint=_AGAIN)


def unplaced(error: Exception, record: str, plan: Plan, where: str) -> BrokerError:
    """A record that the client does not take."""
    hint = f"check the limits of topic {plan.output!r} and kafka.producer.max_request_size; {_AGAIN}"
    return BrokerError(f"the record at {record} cannot be written: {error}", where=where, hint=hint)


_KNOWN: Final[tuple[tuple[tuple[type[KafkaError], ...], str, str], ...]] = (
    (
        (CommitFailedError,),
        "the group {group!r} went on without this process, which was stopped or cut off for longer than its session",
        "start it again",
    ),
    (
        (InvalidProducerEpochError,),
        "the broker ended a transaction of {id!r}: it stood too long, or another took over as instance {instance!r}",
        "start it again, and give each process its own transform.instance_id",
    ),
    (
        (MessageSizeTooLargeError, RecordListTooLargeError),
        "topic {output!r} does not take records as long as the input's",
        "raise its max.message.bytes above that of the input by what raw score, version and headers take",
    ),
    (
        (InvalidTimestampError,),
        "topic {output!r} refuses the timestamp of a record, which is kept as it came",
        "raise its message.timestamp.before.max.ms or message.timestamp.after.max.ms, or set message.timestamp.type",
    ),
    (
        (TransactionalIdAuthorizationFailedError, TopicAuthorizationFailedError, GroupAuthorizationFailedError),
        "this user may not write topic {output!r} under transactional id {id!r} for group {group!r}",
        "allow WRITE on the topic and the transactional id, and READ on the group",
    ),
)
