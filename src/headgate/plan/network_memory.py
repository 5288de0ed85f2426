"""How many network buffers a plan needs: the sizes of its pools, and the sum for each TaskManager before any runs.

The rules are those of Flink's NettyShuffleUtils and GateBuffersSpec.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass

from headgate.config import Config, FlowControl
from headgate.errors import InsufficientBuffers
from headgate.plan.execution import ExecutionPlan
from headgate.plan.stages import at_once

#: The maximum of a pool that may grow until network memory is used up.
_ALL = sys.maxsize


@dataclass(frozen=True, slots=True)
class PoolSize:
    """What a local pool has a right to, and what it may have while others do not need it; buffers."""

    required: int
    maximum: int


def output_pool(subpartitions: int, config: Config) -> PoolSize:
    """A result partition can run with one buffer for each subpartition, and one more that is being filled."""
    required = subpartitions + 1
    if config.flow_control is FlowControl.UNBOUNDED:
        return PoolSize(required, _ALL)
    most = subpartitions * max(1, config.buffers_per_channel) + config.floating_buffers_per_gate
    return PoolSize(required, max(required, most))


def floating_pool(config: Config) -> PoolSize:
    """The buffers that the remote channels of an input share; one is enough to go on."""
    return PoolSize(1, config.floating_buffers_per_gate)


def shared_pool(channels: int, config: Config) -> PoolSize:
    """All buffers of an input without credit, whose channels have none of their own: as many as with credit."""
    if config.flow_control is FlowControl.UNBOUNDED:
        return PoolSize(channels, _ALL)
    most = channels * config.buffers_per_channel + config.floating_buffers_per_gate
    return PoolSize(channels, max(channels, most))


@dataclass(slots=True)
class NetworkNeed:
    """Buffers that one TaskManager cannot do without."""

    outputs: int = 0
    exclusive: int = 0
    floating: int = 0

    @property
    def total(self) -> int:
        return self.outputs + self.exclusive + self.floating

    def __str__(self) -> str:
        return f"{self.outputs} for outputs, {self.exclusive} exclusive to remote channels, {self.floating} floating"


def network_need(plan: ExecutionPlan, taskmanager: int, vertices: Container[int], config: Config) -> NetworkNeed:
    """What one TaskManager's tasks of these vertices need together."""
    need = NetworkNeed()
    for vertex, subtask in plan.subtasks(taskmanager):
        if vertex.id not in vertices:
            continue
        for edge in plan.job.edges:
            if edge.source == vertex.id:
                need.outputs += output_pool(len(plan.consumers(edge, subtask)), config).required
            if edge.target == vertex.id:
                channels = plan.channels(edge, subtask)
                remote = sum(plan.place(channel.producer) != taskmanager for channel in channels)
                if config.flow_control is not FlowControl.CREDIT:
                    need.floating += remote
                elif remote:
                    need.exclusive += remote * config.buffers_per_channel
                    need.floating += floating_pool(config).required
    return need


def check_network_memory(plan: ExecutionPlan, config: Config) -> None:
    """Raises InsufficientBuffers that says what is needed in all, what there is, and what to change. In batch mode only
    stages that may run at one time have to find room together."""
    needs = [
        (network_need(plan, taskmanager, vertices, config), taskmanager)
        for vertices in at_once(plan.job, batch=config.is_batch)
        for taskmanager in range(plan.taskmanagers)
    ]
    need, worst = max(needs, key=lambda found: found[0].total)
    size = config.segment_size
    there = config.network_memory // size
    if need.total > there:
        lower = [f"segment_size (now {size})", "the parallelism"]
        if need.exclusive:
            lower.insert(0, f"buffers_per_channel (now {config.buffers_per_channel})")
        raise InsufficientBuffers(
            f"TaskManager {worst} needs {need.total} network buffers of {size} bytes in all ({need}), but "
            f"network_memory={config.network_memory} holds {there}: raise network_memory to {need.total * size}, "
            f"or lower {' or '.join(lower)}"
        )
