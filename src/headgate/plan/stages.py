"""Which tasks of a job may run when: all at once while data stream, stage by stage when files are between them."""

from __future__ import annotations

from headgate.plan.execution import ExecutionPlan


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
