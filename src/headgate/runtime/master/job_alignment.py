"""The aligned sources of one attempt, as the JobMaster sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import AlignSource, FromDriver, ReportWatermark

if TYPE_CHECKING:
    from headgate.exchange.watermark_alignment import AlignmentGroup


class JobAlignment:
    """Hears the watermarks of aligned sources, and tells all TaskManagers how far their subtasks may read.

    `send` sends a message to all TaskManagers.
    """

    def __init__(self, plan: ExecutionPlan, send: Callable[[FromDriver], None]) -> None:
        self._send = send
        self._groups: dict[int, AlignmentGroup] = {}
        for vertex in plan.job.vertices:
            spec = vertex.head.watermark
            if spec is not None and spec.max_drift is not None:
                from headgate.exchange.watermark_alignment import AlignmentGroup  # few jobs align watermarks

                self._groups[vertex.head.id] = AlignmentGroup(vertex.parallelism, spec.max_drift)

    def on_message(self, message: ReportWatermark) -> None:
        """Note the watermark of a subtask. A report about a source that is not aligned is ignored."""
        group = self._groups.get(message.node)
        bound = None if group is None else group.on_report(message.subtask, message.watermark)
        if bound is not None:
            self._send(AlignSource(node=message.node, bound=bound))
