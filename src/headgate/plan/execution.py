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
    """A job graph on a number of TaskManagers. Subtask i of every vertex shares slot i; slots are dealt to TaskManagers
    in turn, so that smaller vertices are spread too."""

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

    def subpartitions(self, edge: JobEdge) -> int:
        """How many consumers each producer of an edge has."""
        return 1 if edge.partitioning.kind == "forward" else self.job.vertex(edge.target).parallelism

    def channels(self, edge: JobEdge, consumer: int) -> list[Channel]:
        """What one consumer subtask reads on an edge."""
        if edge.partitioning.kind == "forward":
            return [Channel(consumer, 0)]
        return [Channel(producer, consumer) for producer in range(self.job.vertex(edge.source).parallelism)]
