"""Computes how many network buffers a plan needs: the size of each pool, and the sum of these sizes per TaskManager.

The rules are the same as in Flink's NettyShuffleUtils and GateBuffersSpec.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass

from headgate.config import Config, FlowControl
from headgate.errors import InsufficientBuffers
from headgate.plan.execution import ExecutionPlan
from headgate.plan.stages import at_once

#: The maximum size of a pool that may use all network memory.
_ALL = sys.maxsize


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The size of a local pool, in buffers. The pool always has `required` buffers. While other pools leave buffers
    free, the pool may take up to `maximum`."""

    required: int
    maximum: int


def output_pool(subpartitions: int, config: Config) -> PoolSize:
    """Return the size of the pool of a result partition. The pool needs one buffer for each subpartition, and one
    buffer to fill."""
    required = subpartitions + 1
    if config.flow_control is FlowControl.UNBOUNDED:
        return PoolSize(required, _ALL)
    most = subpartitions * max(1, config.buffers_per_channel) + config.floating_buffers_per_gate
    return PoolSize(required, max(required, most))


def floating_pool(config: Config) -> PoolSize:
    """Return the size of the pool that the remote channels of an input share. One buffer is enough to make progress."""
    return PoolSize(1, config.floating_buffers_per_gate)


def shared_pool(channels: int, config: Config) -> PoolSize:
    """Return the size of the pool of an input without credit. Its channels have no buffers of their own.

    The maximum is the number of buffers that the same input would have with credit.
    """
    if config.flow_control is FlowControl.UNBOUNDED:
        return PoolSize(channels, _ALL)
    most = channels * config.buffers_per_channel + config.floating_buffers_per_gate
    return PoolSize(channels, max(channels, most))


@dataclass(slots=True)
class NetworkNeed:
    """The least number of buffers that one TaskManager needs, by their use."""

    outputs: int = 0
    exclusive: int = 0
    floating: int = 0

    @property
    def total(self) -> int:
        return self.outputs + self.exclusive + self.floating

    def __str__(self) -> str:
        return f"{self.outputs} for outputs, {self.exclusive} exclusive to remote channels, {self.floating} floating"


def network_need(plan: ExecutionPlan, taskmanager: int, vertices: Container[int], config: Config) -> NetworkNeed:
    """Return the number of buffers that the tasks of these vertices in one TaskManager need together."""
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
    """Raise InsufficientBuffers if a TaskManager needs more buffers than it has.

    The error names the needed buffers, the available buffers, and the options to change. In batch mode, only stages
    that may run at the same time need buffers at the same time.
    """
    needs = [
        (network_need(plan, taskmanager, vertices, config), taskmanager)
        for vertices in at_once(plan.job, batch=config.is_batch)
        for taskmanager in range(plan.taskmanagers)
    ]
    need, neediest = max(needs, key=lambda candidate: candidate[0].total)
    size = config.segment_size
    available = config.network_memory // size
    if need.total > available:
        lower = [f"segment_size (now {size})", "the parallelism"]
        if need.exclusive:
            lower.insert(0, f"buffers_per_channel (now {config.buffers_per_channel})")
        raise InsufficientBuffers(
            f"TaskManager {neediest} needs {need.total} network buffers of {size} bytes in all ({need}), but "
            f"network_memory={config.network_memory} holds {available}: raise network_memory to {need.total * size}, "
            f"or lower {' or '.join(lower)}"
        )
