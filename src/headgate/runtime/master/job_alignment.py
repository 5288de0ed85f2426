"""Coordinates the sources with watermark alignment, on the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import AlignSource, FromDriver, ReportWatermark

if TYPE_CHECKING:
    from headgate.exchange.watermark_alignment import AlignmentGroup


class JobAlignment:
    """The watermark alignment of one attempt, for the JobMaster.

    It collects the watermarks that subtasks of aligned sources report. It then sends each source's bound: the watermark
    up to which subtasks may read. `send` sends a message to all TaskManagers.
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
        """Record the watermark of a subtask. Send the source's bound if it has changed. Ignore reports about sources
        that are not aligned."""
        group = self._groups.get(message.node)
        bound = None if group is None else group.on_report(message.subtask, message.watermark)
        if bound is not None:
            self._send(AlignSource(node=message.node, bound=bound))
