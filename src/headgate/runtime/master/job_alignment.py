"""Coordinates the sources with watermark alignment, on the driver."""

from __future__ import annotations

from collections import defaultdict
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
        aligned: dict[str | int, dict[int, int]] = defaultdict(dict)
        subtasks: dict[str | int, int] = defaultdict(int)
        for vertex in plan.job.vertices:
            spec = vertex.head.watermark
            if spec is not None and spec.max_drift is not None:
                group = vertex.head.id if spec.group is None else spec.group
                aligned[group][vertex.head.id] = spec.max_drift
                subtasks[group] += vertex.parallelism
        for group, drifts in aligned.items():
            from headgate.exchange.watermark_alignment import AlignmentGroup  # few jobs align watermarks

            self._groups |= dict.fromkeys(drifts, AlignmentGroup(drifts, subtasks[group]))

    def on_message(self, message: ReportWatermark) -> None:
        """Record the watermark of a subtask. Send the bounds that have changed. Ignore reports about sources that are
        not aligned."""
        group = self._groups.get(message.node)
        if group is None:
            return
        for node, bound in group.on_report(message.node, message.subtask, message.watermark).items():
            self._send(AlignSource(node=node, bound=bound))
