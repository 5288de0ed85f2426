"""A pipeline of the user's in an environment of the test's: its sources, sinks and clock are replaced, all else stays.

Its own sources and sinks are made, and then neither prepared nor opened: no file is touched.
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
from headgate.testing.given_source import GivenSource
from headgate.testing.kept_sink import KeptSink
from headgate.testing.set_clock import SetClock, on_clock

_T = TypeVar("_T")
#: Builds streams from the sources of an environment. It ends them with sinks, or returns one, or several by name.
Pipeline: TypeAlias = Callable[[StreamEnvironment], Any]

#: What the one stream is called that a pipeline returns.
RETURNED = "returned"
_LEAVE_IT = "the pipeline calls {}, and the test is to run it: build the streams in a function that runs nothing"


class _PlanOnly(JobBuilder):
    """Refuses to run what the test is to run."""

    def start(self, name: str, resume: str | None, allow_duplicates: bool) -> JobHandle:
        raise PlanError(_LEAVE_IT.format("execute()"))

    def collect(self, rows: PlannedRows, limit: int | None) -> pa.Table:
        raise PlanError(_LEAVE_IT.format("collect()"))

    def to_dataframe(self, rows: PlannedRows) -> Any:
        raise PlanError(_LEAVE_IT.format("to_dataframe()"))

    def run(self, resume: str | None) -> JobHandle:
        return super().start("test", resume, False)


class PlanEnvironment(StreamEnvironment):
    """Takes a pipeline's plan; jobs of it run in threads of this process."""

    plan: _PlanOnly

    def __init__(self, parallelism: int) -> None:
        deployment = LocalDeployment(taskmanagers=1, processes=False)
        super().__init__(parallelism=parallelism, deployment=deployment)
        self._jobs = self.plan = _PlanOnly(self.config, self.parallelism, None, deployment)


class PipelineUnderTest:
    """`sources` and `outputs` go by name, and by uid where there is one; `names` has one of each output. Raises
    PlanError for a pipeline without a result, or one that runs something itself."""

    def __init__(self, pipeline: Pipeline, parallelism: int, clock: SetClock) -> None:
        environment = PlanEnvironment(parallelism)
        self._plan = environment.plan
        self.sources: dict[str, GivenSource] = {}
        self.outputs: dict[str, KeptSink] = {}
        self.names: list[str] = []
        self._keep_returned(pipeline(environment))
        if not self._plan.pending:
            raise PlanError("the pipeline has no result: return its stream, or end it with sink_to(...)")
        for node in self._plan.graph.graph(self._plan.pending).nodes:
            self._replace(node, clock)

    def start(self, resume: str | None) -> JobHandle:
        """Run it, from the checkpoint `resume` if there is one."""
        return self._plan.run(resume)

    def source(self, name: str | None) -> GivenSource:
        """The one of this name; None: the only one."""
        return _named("source", name, self.sources)

    def output(self, name: str | None) -> KeptSink:
        """The one of this name; None: the stream that was returned, or the only output."""
        return _named("output", RETURNED if name is None and RETURNED in self.outputs else name, self.outputs)

    def _keep_returned(self, returned: object) -> None:
        if returned is None:
            return
        streams = returned if isinstance(returned, Mapping) else {RETURNED: returned}
        for name, stream in streams.items():
            if not isinstance(stream, DataStream):
                raise PlanError(
                    f"the pipeline returned {stream!r}: return a stream, several as a dict by name, or None if it ends "
                    "them with sink_to(...)"
                )
            self._keep(KeptSink(stream.schema), name)
            stream.sink_to(self.outputs[name])

    def _replace(self, node: Node, clock: SetClock) -> None:
        change = self._plan.graph.change
        if node.source is not None:
            sides = {tag: side.schema for tag, side in node.sides.items()}
            source = GivenSource(node.schema, sides, node.parallelism, has_event_time=node.watermark is not None)
            # The test's watermarks are the only ones, so rows make none.
            told = node.watermark and dataclasses.replace(node.watermark, out_of_orderness=UNBOUNDED, idle_timeout=None)
            change(node.id, source=source, watermark=told)
            self.sources.update((name, source) for name in (node.name, node.uid) if name is not None)
        elif node.operator is not None:
            change(node.id, operator=on_clock(node.operator, clock, in_task=True))
        elif not isinstance(node.sink, KeptSink):
            sink = KeptSink(node.schema)
            change(node.id, sink=sink)
            self._keep(sink, node.name)
            if node.uid is not None:
                self.outputs[node.uid] = sink

    def _keep(self, sink: KeptSink, name: str) -> None:
        if name in self.outputs:
            raise PlanError(f"two outputs of the pipeline are called {name!r}; name the sink with .name(...)")
        self.outputs[name] = sink
        self.names.append(name)


def _named(what: str, name: str | None, there: Mapping[str, _T]) -> _T:
    if name is None and len({id(each) for each in there.values()}) == 1:
        return next(iter(there.values()))
    if name is not None and name in there:
        return there[name]
    names = ", ".join(map(repr, there))
    if name is None:
        raise PlanError(f"the pipeline has several {what}s, so say which one: {names}")
    raise PlanError(f"the pipeline has no {what} {name!r}; there are: {names}")
