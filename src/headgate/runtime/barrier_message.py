"""How a job's checkpoints begin: what TaskManagers are told. And what their tasks tell of each."""

from __future__ import annotations

import time
from typing import Any

from headgate.config import Config
from headgate.records.events import Alignment
from headgate.transport.control_link import Message

#: What one task tells of one checkpoint; see `TaskBarriers`.
Part = dict[str, Any]


def alignment(config: Config) -> tuple[Alignment, float]:
    """How the barriers of a job's checkpoints go, and their timeout in seconds."""
    if not config.unaligned:
        return (Alignment.COUNTED if config.checkpoint_mode == "at-least-once" else Alignment.ALIGNED), 0.0
    return (Alignment.TIMEOUT if config.aligned_timeout else Alignment.UNALIGNED), config.aligned_timeout


def barrier_message(checkpoint: int, alignment: Alignment, timeout: float) -> Message:
    """Tells TaskManagers to begin a checkpoint; `timeout` in seconds."""
    times = {"timestamp": round(time.time() * 1e6), "timeout": round(timeout * 1e6)}
    return {"type": "barrier", "id": checkpoint, "alignment": int(alignment), **times}
