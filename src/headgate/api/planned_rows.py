"""`PlannedRows`: the rows at one place of a plan, and the operators that may follow. The users' classes are in
`stream`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from headgate.api import event_time as times
from headgate.api.builder import GraphBuilder, Upstream
from headgate.api.checks import check_label, check_schema, check_sides, listed
from headgate.errors import PlanError
from headgate.exchange.combiner import CombinerFactory
from headgate.operators.operator import Operator, OperatorFactory, check_function
from headgate.operators.rows import (
    Columns,
    Filter,
    FilterRows,
    Project,
    filter_predicate,
    result_schema,
    select_expressions,
)
from headgate.operators.sql.expressions import HIDDEN_COLUMN, Expression, column_expression
from headgate.plan.graph import FORWARD, TO_ONE, ColumnUse, EventTime, Partitioning, Side

#: The partitioning by one global key. One subtask then processes all rows; other subtasks would have no work.
_GLOBAL_KEY = Partitioning("key_group")


@dataclass(frozen=True, eq=False)
class PlannedRows:
    """The rows at one place of a plan: their inputs, their columns, and their event time.

    The inputs include the partitioning of the rows. `schema` includes the hidden column.
    """

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
        *,
        uses: ColumnUse | None = None,
        upserts_by: Sequence[str] | None = None,
        **attributes: Any,
    ) -> PlannedRows:
        """Add an operator that reads these rows, and return its output. `GraphBuilder.add` explains `upserts_by`."""
        node_id = self.graph.add(
            kind,
            self.inputs,
            parallelism=self.parallelism_below(),
            schema=schema,
            operator=operator,
            uses=uses,
            event_time=event_time,
            upserts_by=upserts_by,
            sides=sides or {},
            attributes={"kind": kind, **attributes},
        )
        return PlannedRows(self.graph, (Upstream(source=node_id),), schema, event_time)

    def function(
        self,
        kind: str,
        operator: Callable[..., Operator],
        fn: Any,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None,
    ) -> PlannedRows:
        """Add an operator that calls a user's function, and return its output. Raises PlanError for a wrong schema."""
        check_function(kind, fn)
        output = check_schema(kind, schema)
        schemas = check_sides(kind, side_outputs)
        sides = {tag: Side(side, times.after_function(self.event_time, side)) for tag, side in schemas.items()}
        event_time = times.after_function(self.event_time, output)
        return self.then(kind, partial(operator, fn, output, schemas), output, event_time, sides)

    def filter(self, condition: Any, *, by_row: bool) -> PlannedRows:
        """Keep the rows for which the user's condition is true. With `by_row`, the condition is a function of one
        row."""
        predicate = filter_predicate(condition, self.schema, by_row)
        operator = partial(FilterRows if by_row else Filter, predicate, self.schema)
        uses = None
        if isinstance(predicate, Expression):
            uses = ColumnUse(predicate.columns, {name: name for name in self.schema.names})
        return self.then("filter", operator, self.schema, self.event_time, uses=uses)

    def project(self, kind: str, columns: Columns) -> PlannedRows:
        """Compute columns. If the event-time column is not one of them, keep it as the hidden column."""
        event_time = self.event_time
        if event_time is not None and event_time.column not in dict(columns):
            columns += ((HIDDEN_COLUMN, column_expression(event_time.column, self.schema)),)
            event_time = replace(event_time, column=HIDDEN_COLUMN)
        schema = result_schema(columns)
        times.check_still_time(kind, event_time, schema)
        return self.then(kind, partial(Project, columns, schema), schema, event_time, uses=_use_of(columns))

    def side_output(self, tag: str) -> PlannedRows:
        """Return the side output `tag` of the last operator. Raises PlanError if the operator has no such side
        output."""
        node = self.graph[self.last("side_output")]
        if self.inputs[0].tag is not None:
            raise PlanError(
                f"side_output: this stream is the side output {self.inputs[0].tag!r} itself; call side_output on the "
                f"stream that comes out of {node.name!r}"
            )
        if check_label("side_output: the tag", tag) not in node.sides:
            known = f"it has {listed(node.sides)}" if node.sides else "it has none"
            raise PlanError(
                f"side_output: {node.name!r} has no side output {tag!r}; {known}; functions declare side outputs with "
                "side_outputs={tag: schema}, windows with late_output(tag)"
            )
        side = node.sides[tag]
        return PlannedRows(self.graph, (Upstream(source=node.id, tag=tag),), side.schema, side.event_time)

    def union(self, others: Sequence[PlannedRows]) -> PlannedRows:
        """Return these rows and the rows of the others as one stream.

        Raises PlanError if the columns differ, or if only some of the rows replace one another, or not the same ones.
        """
        for other in others:
            self._check_union(other)
        parts = (self, *others)
        self._check_union_kinds(parts)
        event_time = times.common([(part.event_time, part.schema) for part in parts])
        names = times.visible(self.schema).names
        if event_time is not None and event_time.column == HIDDEN_COLUMN:
            names = [*names, HIDDEN_COLUMN]
        schema = pa.schema([_common_field([part.schema.field(name) for part in parts]) for name in names])
        inputs = tuple(upstream for part in parts for upstream in part._with_schema(schema, "union"))
        return PlannedRows(self.graph, inputs, schema, event_time)

    def partitioned(self, partitioning: Partitioning) -> PlannedRows:
        """Return the same rows with another partitioning for the next operator."""
        return replace(self, inputs=tuple(replace(part, partitioning=partitioning) for part in self.inputs))

    def sending(self, columns: AbstractSet[str]) -> PlannedRows:
        """Return these rows with only the given columns, in their order: the next operator reads no others.

        The rows are partitioned, so other columns do not leave their task.
        """
        names = self.schema.names
        if columns >= set(names):
            return self
        sent = tuple(name for name in names if name in columns) or (names[0],)  # rows without columns have no number
        schema = pa.schema([self.schema.field(name) for name in sent])
        return replace(self, inputs=tuple(replace(part, columns=sent) for part in self.inputs), schema=schema)

    def combined(self, combiner: CombinerFactory) -> PlannedRows:
        """Return these rows without those that a combiner leaves out: the next operator does not need them.

        The rows are partitioned, so the others do not leave their task.
        """
        return replace(self, inputs=tuple(replace(part, combiner=combiner) for part in self.inputs))

    def changes(self) -> PlannedRows:
        """Return these rows as append-only: each change of a result counts as a row of its own."""
        return replace(self, inputs=tuple(replace(part, as_changes=True) for part in self.inputs))

    def check_append_only(self, call: str) -> None:
        """Raise PlanError if these rows are upserting. `call` is the user's call, which needs append-only rows."""
        upserts = self.graph.upserts(self.inputs)
        if upserts is not None:
            from headgate.api.kinds import refused  # only for an error

            raise refused(call, upserts, self.graph[upserts.origin])

    def check_upsert_key(self, call: str, key: tuple[str, ...]) -> None:
        """Raise PlanError if these rows are upserting by other columns than `key`, or if no columns say what a row
        replaces."""
        if self.graph.upserts(self.inputs) is not None:
            from headgate.api.upsert_keys import check_key  # few sinks replace rows by key

            check_key(self.graph, call, self.inputs, key)

    def shown(self) -> PlannedRows:
        """Return the same rows without the hidden column and without event time."""
        schema = times.visible(self.schema)
        return PlannedRows(self.graph, self._with_schema(schema, "project"), schema, None)

    def last(self, call: str) -> int:
        """Return the node of the last operator. Raises PlanError for a union, which is not an operator."""
        if len(self.inputs) > 1:
            raise PlanError(f"{call}: a union is not an operator; call {call} on the streams before union()")
        return self.inputs[0].source

    def parallelism_below(self) -> int:
        """Return the default parallelism of the next operator.

        The partitioning may need a certain number of subtasks. Otherwise it is the environment's parallelism.
        """
        for part in self.inputs:
            if part.partitioning == FORWARD:
                return self.graph[part.source].parallelism
            if part.partitioning in (_GLOBAL_KEY, TO_ONE):
                return 1
        return self.graph.parallelism

    def _with_schema(self, schema: pa.Schema, kind: str) -> tuple[Upstream, ...]:
        """Return the inputs with only the columns of `schema`. Each input gets a projection before its partitioning."""
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
                    (replace(part, partitioning=None),),
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
                    "use select() to make them equal"
                )

    def _check_union_kinds(self, parts: Sequence[PlannedRows]) -> None:
        kinds = [self.graph.upserts(part.inputs) for part in parts]
        one = next((kind for kind in kinds if kind is not None), None)
        for other in kinds:
            if one is not None and other != one:
                from headgate.api.kinds import united  # only for an error

                raise united(one, self.graph[one.origin], other, None if other is None else self.graph[other.origin])


def _column(field: pa.Field | None) -> str:
    return "no column" if field is None else f"{field.name!r} {field.type}"


def _use_of(columns: Columns) -> ColumnUse:
    """Return the input columns that a `Project` needs. It computes every expression, even one that nobody needs: the
    expression may raise an error."""
    computed = [expression.columns for _, expression in columns if expression.column is None]
    passed = {name: expression.column for name, expression in columns if expression.column is not None}
    return ColumnUse(frozenset().union(*computed), passed)


def _common_field(fields: list[pa.Field]) -> pa.Field:
    """Return the field of a union. It is nullable if one of the fields is."""
    return fields[0].with_nullable(any(field.nullable for field in fields)).remove_metadata()
