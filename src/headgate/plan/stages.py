"""Which tasks of a job may run when: all at once while data stream, stage by stage when files are between them."""

from __future__ import annotations

from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import JobGraph


class Stages:
    """The vertices of a plan that may run. In batch mode each is a stage of its own, and one may run when all subtasks
    of all its producers have finished."""

    def __init__(self, plan: ExecutionPlan, *, batch: bool) -> None:
        job = plan.job
        producers = {vertex.id: {edge.source for edge in job.inputs(vertex)} for vertex in job.vertices}
        self._waiting = {vertex: wanted for vertex, wanted in producers.items() if wanted and batch}
        self._running = {vertex.id: vertex.parallelism for vertex in job.vertices}
        #: Vertices that run from the start.
        self.first = [vertex for vertex in producers if vertex not in self._waiting]

    def finished(self, vertex: int) -> list[int]:
        """A subtask of the vertex has finished. Returns the vertices that may run now, and could not before."""
        self._running[vertex] -= 1
        if self._running[vertex]:
            return []
        for producers in self._waiting.values():
            producers.discard(vertex)
        ready = [waiting for waiting, producers in self._waiting.items() if not producers]
        for each in ready:
            del self._waiting[each]
        return ready


def at_once(job: JobGraph, *, batch: bool) -> list[set[int]]:
    """Sets of vertices of which each holds all that may ever run at one time. In batch mode one for each vertex: with
    it run only those that it neither waits for nor keeps waiting."""
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
