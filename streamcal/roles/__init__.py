"""The two roles of a monitor: joining partitions, and aggregating what they counted; each durable under a claim."""
