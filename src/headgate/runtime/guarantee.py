"""What a failure may do to the rows of a job: decided by its checkpoints, its sources and its sinks together."""

from __future__ import annotations

from typing import Literal

from headgate.config import Config
from headgate.plan.job_graph import JobGraph

Guarantee = Literal["exactly-once", "at-least-once", "none"]


def guarantee_of(job: JobGraph, config: Config) -> Guarantee:
    """See `JobHandle.guarantee`."""
    nodes = [node for vertex in job.vertices for node in vertex.nodes]
    begun_anew = any(node.source is not None and not node.source.replayable for node in nodes)
    if config.checkpoint_dir is None or begun_anew:
        return "none"
    come_again = any(node.sink is not None and not node.sink.exactly_once for node in nodes)
    return "at-least-once" if come_again or config.checkpoint_mode == "at-least-once" else "exactly-once"
