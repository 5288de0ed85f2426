"""The execution graph: which subtask runs in which TaskManager, and which channels join subtasks.

It is pure arithmetic on the job graph, so each TaskManager computes its own part from the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel from a producer subtask to a consumer subtask, which reads `subpartition` of the producer's result."""

    producer: int
    subpartition: int


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A job graph on a number of TaskManagers.

    Subtasks i of all vertices share slot i. The TaskManagers get slots in turn, so that a vertex with few subtasks also
    runs in several TaskManagers.
    """

    job: JobGraph
    taskmanagers: int

    def place(self, subtask: int) -> int:
        """Return the TaskManager of a subtask. Both are numbers from 0."""
        return subtask % self.taskmanagers

    def subtasks(self, taskmanager: int) -> Iterator[tuple[JobVertex, int]]:
        """Yield the subtasks of one TaskManager, each with its vertex."""
        for vertex in self.job.vertices:
            for subtask in range(taskmanager, vertex.parallelism, self.taskmanagers):
                yield vertex, subtask

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """Return the consumer subtasks to which one producer subtask of an edge has a channel, in the order of its
        subpartitions."""
        producers, consumers = self._ends(edge)
        return neighbours(producer, producers, consumers) if _is_pointwise(edge) else range(consumers)

    def channels(self, edge: JobEdge, consumer: int) -> list[Channel]:
        """Return the channels that one consumer subtask reads on an edge."""
        producers, consumers = self._ends(edge)
        wanted = neighbours(consumer, consumers, producers) if _is_pointwise(edge) else range(producers)
        return [Channel(producer, consumer - self.consumers(edge, producer).start) for producer in wanted]

    def _ends(self, edge: JobEdge) -> tuple[int, int]:
        return self.job.vertex(edge.source).parallelism, self.job.vertex(edge.target).parallelism


def neighbours(subtask: int, subtasks: int, others: int) -> range:
    """Return the subtasks at the other end of a pointwise edge that are joined with one subtask at this end.

    This end has `subtasks`, the other `others`. If the other end has more, each subtask here gets an even share of
    them; if it has fewer, each gets one. Both ends compute the same pairs (Flink: EdgeManagerBuildUtil).

    >>> [list(neighbours(subtask, 2, 4)) for subtask in range(2)]
    [[0, 1], [2, 3]]
    >>> [list(neighbours(subtask, 4, 2)) for subtask in range(4)]
    [[0], [0], [1], [1]]
    """
    if others < subtasks:
        neighbour = ((subtask + 1) * others - 1) // subtasks
        return range(neighbour, neighbour + 1)
    return range(subtask * others // subtasks, (subtask + 1) * others // subtasks)


def _is_pointwise(edge: JobEdge) -> bool:
    return edge.partitioning.kind in ("forward", "rescale")
