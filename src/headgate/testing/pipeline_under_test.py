"""A user's pipeline in the environment of a test. The test replaces only its sources, its sinks and its clock.

The pipeline creates its own sources and sinks, but nothing prepares or opens them, so no file is touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from headgate.api.environment import StreamEnvironment
from headgate.api.job_builder import JobBuilder
from headgate.api.planned_rows import PlannedRows
from headgate.api.stream import DataStream
from headgate.connectors.watermarks import UNBOUNDED
from headgate.errors import PlanError
from headgate.plan.graph import Node
from headgate.runtime.launch.local import LocalDeployment
from headgate.runtime.master.job import JobHandle
from headgate.testing.collecting_sink import CollectingSink
from headgate.testing.given_source import GivenSource
from headgate.testing.set_clock import SetClock, on_clock

_T = TypeVar("_T")
#: A function that builds streams in an environment. It ends the streams with sinks, or returns a stream, or returns
#: several streams as a dict by name.
Pipeline: TypeAlias = Callable[[StreamEnvironment], Any]

#: The name of the output when a pipeline returns a single stream.
RETURNED = "returned"
_MUST_NOT_RUN = (
    "the pipeline calls {}, but only the test may run it: the function that you give the test must only build streams"
)


class _PlanOnly(JobBuilder):
    """A job builder that refuses the pipeline's own calls to run it; `run` is for the test."""

    def start(self, name: str, resume: str | None, allow_duplicates: bool) -> JobHandle:
        raise PlanError(_MUST_NOT_RUN.format("execute()"))

    def collect(self, rows: PlannedRows, limit: int | None) -> pa.Table:
        raise PlanError(_MUST_NOT_RUN.format("collect()"))

    def to_dataframe(self, rows: PlannedRows) -> Any:
        raise PlanError(_MUST_NOT_RUN.format("to_dataframe()"))

    def run(self, resume: str | None) -> JobHandle:
        return super().start("test", resume, False)


class PlanEnvironment(StreamEnvironment):
    """The environment in which a pipeline builds its plan; its jobs run in threads of this process."""

    plan: _PlanOnly

    def __init__(self, parallelism: int) -> None:
        deployment = LocalDeployment(taskmanagers=1, processes=False)
        super().__init__(parallelism=parallelism, deployment=deployment)
        self._jobs = self.plan = _PlanOnly(self.config, self.parallelism, None, deployment)


class PipelineUnderTest:
    """A pipeline whose sources and sinks are replaced by those of the test.

    The keys of `sources` and `outputs` are names, and also uids where a source or sink has one. `names` has the name of
    each output once. Raises PlanError if the pipeline has no result or runs a job itself.
    """

    def __init__(self, pipeline: Pipeline, parallelism: int, clock: SetClock) -> None:
        environment = PlanEnvironment(parallelism)
        self._plan = environment.plan
        self.sources: dict[str, GivenSource] = {}
        self.outputs: dict[str, CollectingSink] = {}
        self.names: list[str] = []
        self._add_returned(pipeline(environment))
        if not self._plan.pending:
            raise PlanError("the pipeline has no result: return its stream, or end it with sink_to(...)")
        for node in self._plan.graph.graph(self._plan.pending).nodes:
            self._replace(node, clock)

    def start(self, resume: str | None) -> JobHandle:
        """Start a job of the pipeline. If `resume` is not None, the job resumes from this checkpoint."""
        return self._plan.run(resume)

    def source(self, name: str | None) -> GivenSource:
        """Return the source of this name or uid, or the only source if None. Raises PlanError if there is none."""
        return _find("source", name, self.sources)

    def output(self, name: str | None) -> CollectingSink:
        """Return the output of this name or uid. None: the returned stream, or the only output. Raises PlanError."""
        return _find("output", RETURNED if name is None and RETURNED in self.outputs else name, self.outputs)

    def _add_returned(self, returned: object) -> None:
        if returned is None:
            return
        streams = returned if isinstance(returned, Mapping) else {RETURNED: returned}
        for name, stream in streams.items():
            if not isinstance(stream, DataStream):
                raise PlanError(
                    f"the pipeline returned {stream!r}: return a stream, several as a dict by name, or None if it ends "
                    "them with sink_to(...)"
                )
            self._add_output(CollectingSink(stream.schema), name)
            stream.sink_to(self.outputs[name])

    def _replace(self, node: Node, clock: SetClock) -> None:
        change = self._plan.graph.change
        if node.source is not None:
            sides = {tag: side.schema for tag, side in node.sides.items()}
            source = GivenSource(node.schema, sides, node.parallelism, has_event_time=node.watermark is not None)
            # Only the test sets watermarks: with an unbounded delay, rows make no watermark.
            silent = node.watermark
            if silent is not None:
                silent = dataclasses.replace(silent, out_of_orderness=UNBOUNDED, idle_timeout=None)
            change(node.id, source=source, watermark=silent, throttle=None)
            self.sources.update((name, source) for name in (node.name, node.uid) if name is not None)
        elif node.operator is not None:
            change(node.id, operator=on_clock(node.operator, clock, in_task=True))
        elif not isinstance(node.sink, CollectingSink):
            sink = CollectingSink(node.schema)
            change(node.id, sink=sink)
            self._add_output(sink, node.name)
            if node.uid is not None:
                self.outputs[node.uid] = sink

    def _add_output(self, sink: CollectingSink, name: str) -> None:
        if name in self.outputs:
            raise PlanError(f"two outputs of the pipeline are called {name!r}; name the sink with .name(...)")
        self.outputs[name] = sink
        self.names.append(name)


def _find(what: str, name: str | None, by_name: Mapping[str, _T]) -> _T:
    if name is None and len({id(each) for each in by_name.values()}) == 1:
        return next(iter(by_name.values()))
    if name is not None and name in by_name:
        return by_name[name]
    names = ", ".join(map(repr, by_name))
    if name is None:
        raise PlanError(f"the pipeline has several {what}s; name one of them: {names}")
    raise PlanError(f"the pipeline has no {what} {name!r}; there are: {names}")
