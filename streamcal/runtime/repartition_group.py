"""Who writes a topic again: one process per topic, for two would interleave what only one can put into order."""

from __future__ import annotations

from typing import Any, Final

from kafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

__all__ = ["WholeTopicAssignor"]


class WholeTopicAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # the client ships no types
    """Gives every topic as a whole to one member; two topics to two members where there are two.

    The members stand by in the order of their ids, so a topic moves only when the member before them leaves or one with
    a lower id joins.
    """

    name = "streamcal-whole-topic"
    version: Final = 0

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, Any]:
        """See the base class."""
        by_id = sorted(members, key=lambda member: (member.group_instance_id or "", member.member_id))
        given: dict[str, list[tuple[str, list[int]]]] = {member.member_id: [] for member in members}
        for place, topic in enumerate(sorted({topic for member in members for topic in member.metadata.topics})):
            able = [member for member in by_id if topic in member.metadata.topics]
            partitions = sorted(cluster.partitions_for_topic(topic) or ())
            given[able[place % len(able)].member_id].append((topic, partitions))
        return {member: ConsumerProtocolAssignment(cls.version, topics, b"") for member, topics in given.items()}

    @classmethod
    def metadata(cls, topics: Any) -> Any:
        """See the base class."""
        return ConsumerProtocolSubscription(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: Any, generation: Any) -> None:
        """Nothing is remembered."""
