"""Send barriers through a job without taking a checkpoint, to measure how long barriers take."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from headgate.config import Config, FlowControl
from headgate.errors import ConfigError
from headgate.records.events import Alignment
from headgate.runtime.checkpointing.checkpoint_record import HISTORY
from headgate.runtime.checkpointing.injection import injection
from headgate.runtime.control_messages import FromDriver, Part


class BarrierProbes:
    """Injects barriers for a program, and keeps the tasks' reports on the last ten barriers. Barriers of checkpoints
    count, too."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._injected = itertools.count(1)
        self._parts: dict[int, dict[str, Part]] = {}

    def inject(self, alignment: Alignment, timeout: float, post: Callable[[FromDriver], None]) -> int:
        """Send a barrier by `post`, and return its number. Raises ConfigError, see `JobMaster.inject_barrier`."""
        overtakes = alignment in (Alignment.TIMEOUT, Alignment.UNALIGNED)
        if overtakes and self._config.flow_control is not FlowControl.CREDIT:
            raise ConfigError(
                f"a barrier overtakes only with flow_control='credit', but flow_control='{self._config.flow_control}'"
            )
        if self._config.checkpoint_dir is not None:
            raise ConfigError(
                "the job takes checkpoints of its own; a barrier from outside would be mistaken for one of these"
            )
        checkpoint = next(self._injected)
        post(injection(checkpoint, alignment, timeout))
        return checkpoint

    def note(self, part: Part) -> None:
        """Store a task's report, and drop the reports on all but the last ten barriers."""
        self._parts.setdefault(part["checkpoint"], {})[part["task"]] = part
        oldest = max(self._parts) - HISTORY
        self._parts = {checkpoint: parts for checkpoint, parts in self._parts.items() if checkpoint > oldest}

    def parts(self, checkpoint: int) -> dict[str, Part]:
        """Return the tasks' reports on one of the last ten barriers, by task; see `TaskBarriers`."""
        return dict(self._parts.get(checkpoint, {}))
