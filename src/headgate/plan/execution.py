"""The execution graph: decides which TaskManager runs each subtask, and which channels connect subtasks.

Only the job graph and the number of TaskManagers determine the execution graph. Each TaskManager therefore computes its
own part from the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.plan.graph import Partitioning
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel from a producer subtask to a consumer subtask. The consumer reads `subpartition` of the producer's
    result."""

    producer: int
    subpartition: int


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """The execution of a job graph on a number of TaskManagers.

    The subtasks with number i of all vertices share slot i. The TaskManagers get the slots in turn. Even a vertex with
    few subtasks therefore runs in several TaskManagers.
    """

    job: JobGraph
    taskmanagers: int

    def place(self, subtask: int) -> int:
        """Return the number of the TaskManager in which a subtask runs. Subtasks and TaskManagers count from 0."""
        return subtask % self.taskmanagers

    def subtasks(self, taskmanager: int) -> Iterator[tuple[JobVertex, int]]:
        """Yield the subtasks of one TaskManager, each with its vertex."""
        for vertex in self.job.vertices:
            for subtask in range(taskmanager, vertex.parallelism, self.taskmanagers):
                yield vertex, subtask

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """Return the consumer subtasks to which one producer subtask of an edge has a channel.

        The consumers are in the order of the producer's subpartitions.
        """
        producers, consumers = self._ends(edge)
        return neighbours(producer, producers, consumers) if is_pointwise(edge.partitioning) else range(consumers)

    def channels(self, edge: JobEdge, consumer: int) -> list[Channel]:
        """Return the channels that one consumer subtask reads on an edge."""
        producers, consumers = self._ends(edge)
        wanted = neighbours(consumer, consumers, producers) if is_pointwise(edge.partitioning) else range(producers)
        return [Channel(producer, consumer - self.consumers(edge, producer).start) for producer in wanted]

    def _ends(self, edge: JobEdge) -> tuple[int, int]:
        return self.job.vertex(edge.source).parallelism, self.job.vertex(edge.target).parallelism


def neighbours(subtask: int, subtasks: int, others: int) -> range:
    """Return the neighbours of one subtask at this end of a pointwise edge: the subtasks at the other end with which
    it has a channel.

    This end has `subtasks` subtasks, and the other end has `others`. If the other end has more, each subtask at this
    end gets an even share of them. If the other end has fewer, each subtask at this end gets one. Both ends compute the
    same pairs (Flink: EdgeManagerBuildUtil).

    >>> [list(neighbours(subtask, 2, 4)) for subtask in range(2)]
    [[0, 1], [2, 3]]
    >>> [list(neighbours(subtask, 4, 2)) for subtask in range(4)]
    [[0], [0], [1], [1]]
    """
    if others < subtasks:
        neighbour = ((subtask + 1) * others - 1) // subtasks
        return range(neighbour, neighbour + 1)
    return range(subtask * others // subtasks, (subtask + 1) * others // subtasks)


def is_pointwise(partitioning: Partitioning) -> bool:
    """Return whether a subtask has channels to its `neighbours` only, and not to all subtasks."""
    return partitioning.kind in ("forward", "rescale")
