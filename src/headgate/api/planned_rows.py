"""Rows at one place of a plan, and the operators that can come next. What the user calls is in `stream`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from headgate.api import event_time as times
from headgate.api.builder import GraphBuilder, Upstream
from headgate.api.checks import check_label, check_schema, check_sides, listed
from headgate.errors import PlanError
from headgate.operators.operator import Operator, OperatorFactory, check_function
from headgate.operators.rows import Columns, Project, result_schema, select_expressions
from headgate.operators.sql.expressions import HIDDEN_COLUMN, column_expression
from headgate.plan.graph import FORWARD, TO_ONE, EventTime, Partitioning, Side

#: Rows of one global key are worked on by one subtask; more would have nothing to do.
_GLOBAL_KEY = Partitioning("key_group")


@dataclass(frozen=True, eq=False)
class PlannedRows:
    """Where rows come from and how they are partitioned, their columns (the hidden one among them), and what their
    event time is."""

    graph: GraphBuilder
    inputs: tuple[Upstream, ...]
    schema: pa.Schema
    event_time: EventTime | None

    def then(
        self,
        kind: str,
        operator: OperatorFactory,
        schema: pa.Schema,
        event_time: EventTime | None,
        sides: Mapping[str, Side] | None = None,
        **attributes: Any,
    ) -> PlannedRows:
        """What comes out of one more operator."""
        node_id = self.graph.add(
            kind,
            self.inputs,
            parallelism=self.parallelism_below(),
            schema=schema,
            operator=operator,
            event_time=event_time,
            sides=sides or {},
            attributes={"kind": kind, **attributes},
        )
        return PlannedRows(self.graph, (Upstream(node_id),), schema, event_time)

    def function(
        self,
        kind: str,
        operator: Callable[..., Operator],
        fn: Any,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None,
    ) -> PlannedRows:
        """What a function of the user's makes of them."""
        check_function(kind, fn)
        output = check_schema(kind, schema)
        schemas = check_sides(kind, side_outputs)
        sides = {tag: Side(side, times.after_function(self.event_time, side)) for tag, side in schemas.items()}
        event_time = times.after_function(self.event_time, output)
        return self.then(kind, partial(operator, fn, output, schemas), output, event_time, sides)

    def project(self, kind: str, columns: Columns) -> PlannedRows:
        """Computed columns; the event time's comes along hidden if it is not among them."""
        event_time = self.event_time
        if event_time is not None and event_time.column not in dict(columns):
            columns += ((HIDDEN_COLUMN, column_expression(event_time.column, self.schema)),)
            event_time = replace(event_time, column=HIDDEN_COLUMN)
        schema = result_schema(columns)
        times.check_still_time(kind, event_time, schema)
        return self.then(kind, partial(Project, columns, schema), schema, event_time)

    def side_output(self, tag: str) -> PlannedRows:
        """What the last operator puts aside under `tag`."""
        node = self.graph[self.last("side_output")]
        if self.inputs[0].tag is not None:
            raise PlanError(f"side_output: this is the side output {self.inputs[0].tag!r} itself")
        if check_label("side_output: the tag", tag) not in node.sides:
            known = f"it has {listed(node.sides)}" if node.sides else "it has none"
            raise PlanError(
                f"side_output: {node.name!r} has no side output {tag!r}; {known}; functions declare theirs with "
                "side_outputs={tag: schema}, windows with late_output(tag)"
            )
        side = node.sides[tag]
        return PlannedRows(self.graph, (Upstream(node.id, tag=tag),), side.schema, side.event_time)

    def union(self, others: Sequence[PlannedRows]) -> PlannedRows:
        """These rows and those of the others."""
        for other in others:
            self._check_union(other)
        parts = (self, *others)
        event_time = times.common([(part.event_time, part.schema) for part in parts])
        names = times.visible(self.schema).names
        if event_time is not None and event_time.column == HIDDEN_COLUMN:
            names = [*names, HIDDEN_COLUMN]
        schema = pa.schema([_common_field([part.schema.field(name) for part in parts]) for name in names])
        inputs = tuple(upstream for part in parts for upstream in part._with_schema(schema, "union"))
        return PlannedRows(self.graph, inputs, schema, event_time)

    def partitioned(self, partitioning: Partitioning) -> PlannedRows:
        """The same rows, sent to the next operator's subtasks in this way."""
        return replace(self, inputs=tuple(replace(part, partitioning=partitioning) for part in self.inputs))

    def shown(self) -> PlannedRows:
        """The same rows without the hidden column."""
        schema = times.visible(self.schema)
        return PlannedRows(self.graph, self._with_schema(schema, "project"), schema, None)

    def last(self, what: str) -> int:
        """The node of the operator that was written last."""
        if len(self.inputs) > 1:
            raise PlanError(f"{what}: a union is no operator of its own; call it on the streams before union()")
        return self.inputs[0].source

    def parallelism_below(self) -> int:
        """The next operator's parallelism, if the user says nothing: the environment's, or what the edge allows."""
        for part in self.inputs:
            if part.partitioning == FORWARD:
                return self.graph[part.source].parallelism
            if part.partitioning in (_GLOBAL_KEY, TO_ONE):
                return 1
        return self.graph.parallelism

    def _with_schema(self, schema: pa.Schema, kind: str) -> tuple[Upstream, ...]:
        """The inputs, each cut to the columns of `schema` before its rows are partitioned."""
        if self.schema.equals(schema):
            return self.inputs
        operator = partial(Project, select_expressions(self.schema, *schema.names), schema)
        graph = self.graph
        return tuple(
            replace(
                part,
                tag=None,
                source=graph.add(
                    kind,
                    (Upstream(part.source, tag=part.tag),),
                    parallelism=graph[part.source].parallelism,
                    schema=schema,
                    operator=operator,
                    event_time=self.event_time if HIDDEN_COLUMN in schema.names else None,
                    attributes={"kind": kind},
                ),
            )
            for part in self.inputs
        )

    def _check_union(self, other: PlannedRows) -> None:
        for mine, its in zip_longest(times.visible(self.schema), times.visible(other.schema)):
            if mine is None or its is None or (mine.name, mine.type) != (its.name, its.type):
                raise PlanError(
                    f"union: columns must be the same, in the same order: here {_column(mine)}, there {_column(its)}; "
                    "use select() to make them so"
                )


def _column(field: pa.Field | None) -> str:
    return "no column" if field is None else f"{field.name!r} {field.type}"


def _common_field(fields: list[pa.Field]) -> pa.Field:
    """Nullable if one of them is."""
    return fields[0].with_nullable(any(field.nullable for field in fields)).remove_metadata()
