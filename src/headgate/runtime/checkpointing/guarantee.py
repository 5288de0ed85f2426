"""Derives a job's guarantee from its checkpoints, sources and sinks: whether a failure may lose or repeat rows."""

from __future__ import annotations

import logging
from typing import Literal

from headgate.config import Config
from headgate.plan.job_graph import JobGraph

log = logging.getLogger(__name__)

Guarantee = Literal["exactly-once", "at-least-once", "none"]


def guarantee_of(job: JobGraph, config: Config) -> Guarantee:
    """Return the guarantee of a job, see `JobHandle.guarantee`."""
    nodes = [node for vertex in job.vertices for node in vertex.nodes]
    restarts_a_source = any(node.source is not None and not node.source.replayable for node in nodes)
    if config.checkpoint_dir is None or restarts_a_source:
        return "none"
    repeats_rows = any(node.sink is not None and not node.sink.exactly_once for node in nodes)
    return "at-least-once" if repeats_rows or config.checkpoint_mode == "at-least-once" else "exactly-once"


def warn_of_sources(name: str, job: JobGraph, when: str) -> None:
    """Log a warning for each source that restarts from its beginning, or whose checkpoints no other job can use.

    `when` completes the sentence "it is read from its beginning when the job ...".
    """
    for node in (vertex.head for vertex in job.vertices):
        if node.source is not None and not node.source.replayable:
            log.warning("job %r: %s is read from its beginning when the job %s: rows in flight are lost, and "
                        "rows that the source repeats count twice", name, node.name, when)  # fmt: skip
        elif node.source is not None and not node.source.resumable:
            log.warning("job %r: %s continues when the job restarts by itself, but no other job can resume from its "
                        "checkpoints or savepoints (resume=): for that, write the rows to files, and read the files",
                        name, node.name)  # fmt: skip
