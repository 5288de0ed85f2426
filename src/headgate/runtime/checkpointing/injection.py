"""Builds the messages to TaskManagers that start a job's checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable

from headgate.config import Config
from headgate.records.events import Alignment
from headgate.runtime.checkpointing.checkpoint_events import TaskId
from headgate.runtime.control_messages import InjectBarrier


def alignment(config: Config) -> tuple[Alignment, float]:
    """Return how the barriers of a job's checkpoints are aligned, and their timeout in seconds."""
    if not config.unaligned:
        return (Alignment.COUNTED if config.checkpoint_mode == "at-least-once" else Alignment.ALIGNED), 0.0
    return (Alignment.TIMEOUT if config.aligned_timeout else Alignment.UNALIGNED), config.aligned_timeout


def injection(
    checkpoint: int,
    alignment: Alignment,
    timeout: float,
    *,
    roots: Iterable[TaskId] | None = None,
    folder: str | None = None,
    stops: bool = False,
) -> InjectBarrier:
    """Return the message that injects a barrier at the tasks `roots`. If `roots` is None, all sources inject a probe.

    `timeout` is in seconds. Tasks write their state to `folder`; without it they write none.
    """
    return InjectBarrier(
        checkpoint=checkpoint,
        alignment=alignment,
        timestamp=round(time.time() * 1e6),
        timeout=round(timeout * 1e6),
        roots=None if roots is None else [(task.vertex, task.subtask) for task in roots],
        folder=folder,
        stops=stops,
    )
