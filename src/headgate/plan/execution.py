"""The execution graph: which subtask runs in which TaskManager, and which channels join them. Pure arithmetic on the
job graph, so each TaskManager works out its own part from the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex


@dataclass(frozen=True, slots=True)
class Channel:
    """One producer subtask to one consumer subtask: `subpartition` of the producer's partition on this edge."""

    producer: int
    subpartition: int


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A job graph on a number of TaskManagers. Subtask i of every vertex shares slot i; slots are distributed to
    TaskManagers in turn, so that smaller vertices are spread too."""

    job: JobGraph
    taskmanagers: int

    def place(self, subtask: int) -> int:
        """The TaskManager of a subtask."""
        return subtask % self.taskmanagers

    def subtasks(self, taskmanager: int) -> Iterator[tuple[JobVertex, int]]:
        """What one TaskManager runs."""
        for vertex in self.job.vertices:
            for subtask in range(taskmanager, vertex.parallelism, self.taskmanagers):
                yield vertex, subtask

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """The consumer subtasks that one producer subtask of an edge has a channel to, a subpartition each."""
        producers, consumers = self._ends(edge)
        return neighbours(producer, producers, consumers) if _is_pointwise(edge) else range(consumers)

    def channels(self, edge: JobEdge, consumer: int) -> list[Channel]:
        """What one consumer subtask reads on an edge."""
        producers, consumers = self._ends(edge)
        wanted = neighbours(consumer, consumers, producers) if _is_pointwise(edge) else range(producers)
        return [Channel(producer, consumer - self.consumers(edge, producer).start) for producer in wanted]

    def _ends(self, edge: JobEdge) -> tuple[int, int]:
        return self.job.vertex(edge.source).parallelism, self.job.vertex(edge.target).parallelism


def neighbours(subtask: int, subtasks: int, others: int) -> range:
    """The subtasks among `others` that a pointwise edge joins with one of `subtasks`: even shares where there are more
    of them, and one where there are fewer. The same from both ends (Flink: EdgeManagerBuildUtil)."""
    if others < subtasks:
        only = ((subtask + 1) * others - 1) // subtasks
        return range(only, only + 1)
    return range(subtask * others // subtasks, (subtask + 1) * others // subtasks)


def _is_pointwise(edge: JobEdge) -> bool:
    return edge.partitioning.kind in ("forward", "rescale")
