"""The outcome of a checkpoint, for `JobHandle.checkpoints` and the job's page."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from headgate.state.checkpoint_metadata import Kind

#: The most checkpoints that a job's history keeps.
HISTORY: Final = 10


@dataclass(slots=True, kw_only=True)
class CheckpointRecord:
    """The outcome of a checkpoint or savepoint.

    `triggered_at` is in seconds since the epoch; within the coordinator, in seconds of its clock. `duration` is how
    long the checkpoint took until it was committed or given up, in seconds. `size` is the size of all tasks' files, in
    bytes. `failure` is None if the checkpoint completed. `parts` has each task's report on its part, by the task's
    name: see `docs/reference/checkpoint-files.md`.
    """

    checkpoint: int
    triggered_at: float
    duration: float = 0.0
    size: int = 0
    failure: str | None = None
    kind: Kind = "checkpoint"
    parts: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        began = datetime.fromtimestamp(self.triggered_at, UTC)
        end = "complete" if self.failure is None else f"failed: {self.failure}"
        size = f"{self.duration:.2f} s, {self.size} bytes"
        return f"CheckpointRecord({self.checkpoint}, {self.kind}, {began:%Y-%m-%d %H:%M:%S} UTC, {size}, {end})"
