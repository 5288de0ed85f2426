"""Names a task's channels in a checkpoint, so that another plan can find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import JobEdge, JobVertex
from headgate.plan.node_keys import exchange_key
from headgate.runtime.task.in_flight import InFlight, size_of
from headgate.state.in_flight_file import ChannelPart, InFlightData


@dataclass(frozen=True, slots=True)
class TaskChannels:
    """The channel names of one task, for the checkpoint: the channels of its gates, in order, and those of each
    output."""

    inputs: Sequence[ChannelPart]
    outputs: Sequence[Sequence[ChannelPart]]

    def name(self, in_flight: InFlight) -> InFlightData:
        """Return the data in flight by channel name, without channels that have no data."""
        named = list(zip(self.inputs, in_flight.inputs, strict=True)) if in_flight.inputs else []
        for parts, pieces in zip(self.outputs, in_flight.outputs, strict=True) if in_flight.outputs else ():
            named += zip(parts, pieces, strict=True)
        return [(part, pieces) for part, pieces in named if size_of(pieces)]


def channels_of(plan: ExecutionPlan, vertex: JobVertex, subtask: int, written: Sequence[JobEdge]) -> TaskChannels:
    """Return the channel names of a subtask. `written` has the edges of the subtask's outputs, in order."""
    inputs: list[ChannelPart] = []
    for edge in plan.job.inputs(vertex):
        key = exchange_key(edge, plan.job)
        inputs += [ChannelPart(key, each.producer, subtask, received=True) for each in plan.channels(edge, subtask)]
    outputs = []
    for edge in written:
        key = exchange_key(edge, plan.job)
        outputs.append([ChannelPart(key, subtask, each, received=False) for each in plan.consumers(edge, subtask)])
    return TaskChannels(inputs, outputs)
