"""A source that no job reads, for tests of plans."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.api.environment import StreamEnvironment
from headgate.api.stream import DataStream
from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.plan.graph import Node, StreamGraph

FLIGHTS = pa.schema(
    {"ts": pa.timestamp("us"), "carrier": pa.string(), "origin": pa.string(), "delay": pa.int64(), "air": pa.float64()}
)


class PaperSource(Source):
    def __init__(self, schema: pa.Schema = FLIGHTS, bounded: bool = True) -> None:
        self.schema = schema
        self.bounded = bounded

    def reader(self, context: ReaderContext) -> SourceReader:
        raise AssertionError("a plan was run")


class Plans:
    """An environment, with helpers that make streams and return the graph of the plan."""

    def __init__(self, parallelism: int = 2, **config: Any) -> None:
        self.env = StreamEnvironment(parallelism=parallelism, config=hg.Config(**config))

    def stream(self, schema: pa.Schema = FLIGHTS, *, timed: bool = True, bounded: bool = True) -> DataStream:
        return self.read(hg.Watermark("ts") if timed else None, schema, bounded)

    def read(self, watermark: hg.Watermark | None, schema: pa.Schema = FLIGHTS, bounded: bool = True) -> DataStream:
        return self.env.from_source(PaperSource(schema, bounded), watermark=watermark)

    def graph(self, *streams: DataStream) -> StreamGraph:
        for stream in streams:
            stream.sink_to(hg.sinks.null())
        return self.env._jobs.graph.graph(self.env._jobs.pending)

    def node(self, stream: DataStream, name: str) -> Node:
        return next(node for node in self.graph(stream).nodes if node.name == name)


@pytest.fixture
def plans() -> Plans:
    return Plans()
