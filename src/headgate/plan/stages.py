"""Decides which vertices of a job may run: all at once in streaming mode, each after its producers in batch mode."""

from __future__ import annotations

from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import JobGraph


class Stages:
    """Tracks which vertices of a plan may run, for the JobMaster.

    In batch mode each vertex is a stage. A vertex may run when all subtasks of its producers have finished.
    """

    def __init__(self, plan: ExecutionPlan, *, batch: bool) -> None:
        job = plan.job
        producers = {vertex.id: {edge.source for edge in job.inputs(vertex)} for vertex in job.vertices}
        #: For each waiting vertex, its producers that have not finished.
        self._waiting = {vertex: unfinished for vertex, unfinished in producers.items() if unfinished and batch}
        #: How many subtasks of each vertex have not finished.
        self._running = {vertex.id: vertex.parallelism for vertex in job.vertices}
        #: The vertices that run from the start.
        self.first = [vertex for vertex in producers if vertex not in self._waiting]

    def finished(self, vertex: int) -> list[int]:
        """Record that a subtask of the vertex has finished. Return the vertices that may start now."""
        self._running[vertex] -= 1
        if self._running[vertex]:
            return []
        for producers in self._waiting.values():
            producers.discard(vertex)
        ready = [waiting for waiting, producers in self._waiting.items() if not producers]
        for started in ready:
            del self._waiting[started]
        return ready


def at_once(job: JobGraph, *, batch: bool) -> list[set[int]]:
    """Return sets of vertices. Vertices that may run at the same time are together in at least one set.

    In batch mode there is one set for each vertex: this vertex, and all vertices that may run beside it.
    """
    everything = {vertex.id for vertex in job.vertices}
    if not batch:
        return [everything]
    before: dict[int, set[int]] = {}
    for vertex in job.vertices:  # in topological order
        sources = {edge.source for edge in job.inputs(vertex)}
        before[vertex.id] = sources.union(*(before[source] for source in sources))
    return [
        {other for other in everything if other not in before[vertex] and vertex not in before[other]}
        for vertex in sorted(everything)
    ]
