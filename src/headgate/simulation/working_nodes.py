"""Lets the sources, operators and sinks of a graph take virtual time for their rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Sink, SinkWriter, Source, SourceReader, WriterContext
from headgate.operators.operator import Operator, OperatorFactory
from headgate.plan.graph import Node, StreamGraph

_T = TypeVar("_T")

#: Lets the running event take as long as the given number of seconds.
Spend = Callable[[float], None]


def working_graph(graph: StreamGraph, rows: Mapping[str, float], spend: Spend) -> StreamGraph:
    """Return the graph, changed so that each node spends `rows[name]` seconds for a row, if `rows` has its name."""
    return StreamGraph(
        tuple(_working(node, rows[node.name], spend) if node.name in rows else node for node in graph.nodes)
    )


def _working(node: Node, seconds: float, spend: Spend) -> Node:
    def work(batch: pa.RecordBatch | None) -> None:
        if batch is not None:
            spend(seconds * batch.num_rows)

    if node.source is not None:
        return replace(node, source=_working_source(node.source, work))
    if node.sink is not None:
        return replace(node, sink=_working_sink(node.sink, work))
    assert node.operator is not None
    return replace(node, operator=_working_operator(node.operator, work))


_Work = Callable[[pa.RecordBatch | None], None]


def _working_source(source: Source, work: _Work) -> Source:
    def reader(context: ReaderContext) -> SourceReader:
        made = source.reader(context)
        read = made.read

        def working_read() -> pa.RecordBatch | None:
            batch = read()
            work(batch)
            return batch

        return _with(made, read=working_read)

    return _with(copy.copy(source), reader=reader)


def _working_sink(sink: Sink, work: _Work) -> Sink:
    def writer(context: WriterContext) -> SinkWriter:
        made = sink.writer(context)
        return _with(made, write=_after(work, made.write))

    return _with(copy.copy(sink), writer=writer)


def _working_operator(factory: OperatorFactory, work: _Work) -> OperatorFactory:
    def make() -> Operator:
        made = factory()
        return _with(made, process=_after(work, made.process))

    return make


def _after(work: _Work, call: Callable[[pa.RecordBatch], None]) -> Callable[[pa.RecordBatch], None]:
    def working_call(batch: pa.RecordBatch) -> None:
        work(batch)
        call(batch)

    return working_call


def _with(made: _T, **methods: Callable[..., Any]) -> _T:
    """Return the object, with some of its methods replaced."""
    vars(made).update(methods)
    return made
