"""`DataStream`: what can be done to rows that have no key. Every call adds to the plan and runs nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, Never, Self

import pyarrow as pa

from headgate.api import event_time as times
from headgate.api.builder import Upstream
from headgate.api.checks import (
    as_columns,
    check_columns,
    check_expressions,
    check_label,
    check_named,
    check_names,
    check_parallelism,
    check_schema,
    check_sides,
    listed,
)
from headgate.connectors.connector import Sink
from headgate.errors import PlanError
from headgate.operators.aggregates.aggregates import Aggregate, key_fields
from headgate.operators.keyed.process_function import KeyedProcessFunction
from headgate.operators.lookup import Lookup, lookup_schema
from headgate.operators.lookup_source import lookup_source
from headgate.operators.operator import Operator, OperatorFactory, check_function
from headgate.operators.rows import (
    Columns,
    Filter,
    FilterRows,
    FlatMapRows,
    MapBatches,
    MapRows,
    Project,
    filter_predicate,
    result_schema,
    select_expressions,
    with_columns_expressions,
)
from headgate.operators.side_output import SideOutput
from headgate.operators.sql.expressions import HIDDEN_COLUMN, column_expression
from headgate.operators.windows.window import Windows
from headgate.other_names import OtherNames
from headgate.plan.graph import (
    BROADCAST,
    FORWARD,
    LOAD_AWARE,
    REBALANCE,
    RESCALE,
    SHUFFLE,
    TO_ONE,
    EventTime,
    Partitioning,
    Side,
)

if TYPE_CHECKING:
    from headgate.api.environment import StreamEnvironment
    from headgate.api.keyed import KeyedStream, WindowedStream

#: Rows of one global key are worked on by one subtask; more would have nothing to do.
_GLOBAL_KEY = Partitioning("key_group")
_NO_KEY = (
    "{} is for each key, and there is none; write key_by('column') right before it, or key_by() for one global key"
)


class _LastOperator(OtherNames, ABC):
    """Settings of the operator that was written last."""

    _env: StreamEnvironment

    @abstractmethod
    def _last(self, what: str) -> int:
        """The id of that operator's node."""

    def name(self, name: str) -> Self:
        """Name it, for metrics, errors and `explain`; a second operator of that name becomes `name#2`."""
        self._env._graph.change(self._last("name"), name=check_label("name", name))
        return self

    def uid(self, uid: str) -> Self:
        """Give it an identity that stays when the pipeline around it changes; unique in a job."""
        self._env._graph.change(self._last("uid"), uid=check_label("uid", uid))
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Give it its own number of subtasks instead of the environment's."""
        node_id = self._last("set_parallelism")
        most = self._env.config.max_parallelism
        checked = check_parallelism(f"set_parallelism of {self._env._graph[node_id].name!r}", parallelism, most)
        self._env._graph.change(node_id, parallelism=checked)
        return self

    def disable_chaining(self) -> Self:
        """Run it in a task of its own, not called directly by the operator before it."""
        self._env._graph.change(self._last("disable_chaining"), chaining=False)
        return self


class StreamSink(_LastOperator):
    """A sink in the plan; `env.execute()` runs it."""

    def __init__(self, env: StreamEnvironment, node_id: int) -> None:
        self._env = env
        self._node_id = node_id

    def _last(self, what: str) -> int:
        return self._node_id


@dataclass(frozen=True, eq=False, repr=False)
class DataStream(_LastOperator):
    """Rows on their way. Immutable, and may be used more than once: each use gets all rows.

    An unknown column, a missing schema and whatever else can be checked is a PlanError at the call that writes it.
    """

    _env: StreamEnvironment
    _inputs: tuple[Upstream, ...]
    _schema: pa.Schema
    _event_time: EventTime | None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return times.visible(self._schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"{type(self).__name__}({columns})"

    if not TYPE_CHECKING:

        def __getitem__(self, what: object) -> object:
            raise TypeError(
                f'a {type(self).__name__} is no frame: its rows flow once env.execute() runs. Write select("a") for '
                'columns, filter("a > 1") for rows, collect(limit=10) to have some of them here'
            )

    # Rows to rows

    def map_batches(
        self,
        fn: Callable[[pa.RecordBatch], Any],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """`fn` gets a RecordBatch and returns one, a list of them, or None; what it returns has `schema`.

        The fast way to use Python: one call per batch. Sizes of batches are not stable, so `fn` must not depend on
        where they are cut. Rows that it returns as `hg.SideOutput(tag, batch)`, alone or in the list, have the schema
        that `side_outputs` gives for the tag, and are read with `side_output(tag)`.
        """
        return self._function("map_batches", MapBatches, fn, schema, side_outputs)

    def map(
        self,
        fn: Callable[[dict[str, Any]], dict[str, Any] | SideOutput],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """`fn` gets a row as a dict and returns one, or `hg.SideOutput(tag, row)`. Convenient, and far slower than
        `map_batches`."""
        return self._function("map", MapRows, fn, schema, side_outputs)

    def flat_map(
        self,
        fn: Callable[[dict[str, Any]], Iterable[dict[str, Any] | SideOutput]],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """`fn` gets a row as a dict and returns any number of them, and of `hg.SideOutput(tag, row)`. Convenient, and
        far slower than `map_batches`."""
        return self._function("flat_map", FlatMapRows, fn, schema, side_outputs)

    def side_output(self, tag: str) -> DataStream:
        """The rows that the operator written last puts aside under `tag`: functions with `side_outputs`, windows with
        `late_output`, sources of lines with "bad". Rows of a side output that is not read are dropped."""
        node = self._env._graph[self._last("side_output")]
        if self._inputs[0].tag is not None:
            raise PlanError(f"side_output: this is the side output {self._inputs[0].tag!r} itself")
        if check_label("side_output: the tag", tag) not in node.sides:
            known = f"it has {listed(node.sides)}" if node.sides else "it has none"
            raise PlanError(
                f"side_output: {node.name!r} has no side output {tag!r}; {known}; functions declare theirs with "
                "side_outputs={tag: schema}, windows with late_output(tag)"
            )
        side = node.sides[tag]
        return DataStream(self._env, (Upstream(node.id, tag=tag),), side.schema, side.event_time)

    def filter(self, condition: Any, *more: Never, rows: bool = False) -> DataStream:
        """Keep the rows for which `condition` is true (not false, not null).

        `condition` is a SQL string ("delay > 5 and carrier is not null"), a `pyarrow.compute.Expression`, or a
        function from a RecordBatch to a boolean Arrow array. With `rows=True` it is a function from one row, as a
        dict, to True, False or None: convenient, and far slower.
        """
        if not isinstance(rows, bool):
            raise PlanError(f"filter: rows={rows!r} must be True or False")
        if more:
            raise PlanError('filter takes one condition; write filter("a > 1 and b > 1")')
        predicate = filter_predicate(condition, self._schema, rows)
        operator = partial(FilterRows if rows else Filter, predicate, self._schema)
        return self._then("filter", operator, self._schema, self._event_time)

    def select(self, /, *columns: str, **expressions: str) -> DataStream:
        """Only these columns, then the given SQL expressions: `select("a", b="c + 1")`."""
        check_expressions("select", expressions)
        return self._project("select", select_expressions(self.schema, *columns, **expressions))

    def with_columns(self, /, *unnamed: Never, **expressions: str) -> DataStream:
        """All columns, and these besides: `with_columns(late="delay > 15")`. A column of that name is replaced."""
        check_named("with_columns", unnamed, 'with_columns(total="a + b")')
        check_expressions("with_columns", expressions)
        return self._project("with_columns", with_columns_expressions(self.schema, **expressions))

    def lookup(
        self,
        table: Any,
        *,
        on: str | Sequence[str],
        how: Literal["left", "inner"] = "left",
        columns: Sequence[str] | None = None,
        suffix: str | None = None,
    ) -> DataStream:
        """Add the columns of a dimension table's row with the same `on`.

        `table` is a pyarrow Table, a frame of pandas or polars, the path of a parquet or CSV file, or a Spark
        DataFrame, which is written to files by a Spark job now; each subtask loads the table whole. `how="inner"` drops
        rows without a match, which otherwise get nulls; null matches nothing. `columns` are those to add (default: all
        but `on`); `suffix` is added to names that the stream has already. A key that is in the table twice fails the
        job.
        """
        on = check_columns("lookup", as_columns("lookup: on", on), self.schema)
        columns = None if columns is None else as_columns("lookup: columns", columns)
        if suffix is not None and not isinstance(suffix, str):
            raise PlanError(f"lookup: suffix={suffix!r} must be a string")
        source = lookup_source(self._env._spilled(table))
        check_names("lookup", source.schema.names)
        schema = lookup_schema(source, on, how, columns, suffix, self._schema)
        operator = partial(Lookup, source, on, how, columns, suffix, self._schema)
        return self._then("lookup", operator, schema, self._event_time)

    def union(self, *others: DataStream) -> DataStream:
        """The rows of all these streams, whose columns must be the same; there is no order between the streams.

        Event time stays if all of them have it in a column of the same name.
        """
        for other in others:
            self._check_union(other)
        streams = (self, *others)
        event_time = times.common([(stream._event_time, stream._schema) for stream in streams])
        hidden = event_time is not None and event_time.column == HIDDEN_COLUMN
        names = [*self.schema.names, HIDDEN_COLUMN] if hidden else self.schema.names
        schema = pa.schema([_common_field([stream._schema.field(name) for stream in streams]) for name in names])
        inputs = tuple(part for stream in streams for part in stream._with_schema(schema, "union"))
        return DataStream(self._env, inputs, schema, event_time)

    def _check_union(self, other: object) -> None:
        if not isinstance(other, DataStream) or other._env is not self._env:
            raise PlanError(f"union: {other!r} is not a stream of this environment")
        for mine, its in zip_longest(self.schema, other.schema):
            if mine is None or its is None or (mine.name, mine.type) != (its.name, its.type):
                raise PlanError(
                    f"union: columns must be the same, in the same order: here {_column(mine)}, there {_column(its)}; "
                    "use select() to make them so"
                )

    # Partitioning: how rows are dealt to the next operator's subtasks

    def key_by(self, *columns: str) -> KeyedStream:
        """Rows with equal keys go to the same subtask. Without columns all rows have one global key."""
        from headgate.api.keyed import KeyedStream

        keys = check_columns("key_by", columns, self.schema)
        key_fields(keys, self.schema)  # some types, such as lists, cannot be keys
        inputs = self._dealt(Partitioning("key_group", keys))
        return KeyedStream(self._env, inputs, self._schema, self._event_time, keys)

    def rebalance(self, *, load_aware: bool = False) -> DataStream:
        """Deal batches in turn to all subtasks of the next operator; with `load_aware` each to the least loaded of the
        next four, so that a slow subtask gets less. Load is what waits in the channel's buffers, so it tells only once
        these fill: of rows that fit into them a slow subtask gets as many as the others, and in batch mode always."""
        if not isinstance(load_aware, bool):
            raise PlanError(f"rebalance: load_aware={load_aware!r} must be True or False")
        return self._with_partitioning(LOAD_AWARE if load_aware else REBALANCE)

    def rescale(self) -> DataStream:
        """Deal batches in turn to a subtask's neighbours only: with 2 subtasks here and 4 below, subtask 0 serves 0 and
        1, subtask 1 serves 2 and 3. Fewer channels than `rebalance`, and an uneven load stays within its neighbours."""
        return self._with_partitioning(RESCALE)

    def shuffle(self) -> DataStream:
        """Deal each row by chance to any subtask of the next operator. The same run again deals the same way, if its
        batches are cut the same way."""
        return self._with_partitioning(SHUFFLE)

    def to_one(self) -> DataStream:
        """Give all rows to subtask 0 of the next operator, which has one subtask unless it is given more."""
        return self._with_partitioning(TO_ONE)

    def partition_by(self, fn: Callable[[pa.RecordBatch, int], Any]) -> DataStream:
        """Deal rows as `fn(batch, subtasks)` says: it returns an integer array, for each row the subtask of the next
        operator, from 0 on. It is called once per batch."""
        check_function("partition_by", fn)
        return self._with_partitioning(Partitioning("custom", function=fn))

    def broadcast(self) -> DataStream:
        """Give every row to every subtask of the next operator."""
        return self._with_partitioning(BROADCAST)

    def forward(self) -> DataStream:
        """Subtask i to subtask i of the next operator, which gets the same parallelism."""
        return self._with_partitioning(FORWARD)

    # What only a keyed stream can do

    def window(self, windows: Windows) -> WindowedStream:
        """See `KeyedStream.window`. Raises PlanError: there is no key."""
        raise PlanError(_NO_KEY.format("window"))

    def aggregate(self, /, *unnamed: Never, final: bool = False, **aggregates: Aggregate) -> DataStream:
        """See `KeyedStream.aggregate`. Raises PlanError: there is no key."""
        raise PlanError(_NO_KEY.format("aggregate"))

    def process(
        self,
        function: KeyedProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """See `KeyedStream.process`. Raises PlanError: there is no key."""
        raise PlanError(_NO_KEY.format("process"))

    # Results

    def sink_to(self, sink: Sink) -> StreamSink:
        """Write the rows to a sink of `hg.sinks`, when `env.execute()` runs the plan."""
        if not isinstance(sink, Sink):
            raise PlanError(f"sink_to: {sink!r} is not a sink; use one of hg.sinks, for example hg.sinks.printer()")
        return StreamSink(self._env, self._env._add_sink(self._shown(), sink))

    def collect(self, limit: int | None = None) -> pa.Table:
        """Run the plan now and return this stream's rows, gathered on the driver.

        Like `execute`, it runs all sinks added since the last run. With `limit` it runs this stream alone, returns
        that many rows (or fewer, if there are fewer) and cancels the job; sinks then wait for the next run.
        """
        return self._env._collect(self._shown(), limit)

    def to_dataframe(self) -> Any:
        """Run the plan now into files, and return a Spark DataFrame over them; nothing is run again by using it.

        Rows do not pass through the driver. The files are in `spill_dir` and live until this process ends.
        """
        return self._env._to_dataframe(self._shown())

    # Adding to the plan

    def _then(
        self,
        kind: str,
        operator: OperatorFactory,
        schema: pa.Schema,
        event_time: EventTime | None,
        sides: Mapping[str, Side] | None = None,
        **attributes: Any,
    ) -> DataStream:
        """This stream with one more operator at its end."""
        node_id = self._env._graph.add(
            kind,
            self._inputs,
            parallelism=self._parallelism_below(),
            schema=schema,
            operator=operator,
            event_time=event_time,
            sides=sides or {},
            attributes={"kind": kind, **attributes},
        )
        return DataStream(self._env, (Upstream(node_id),), schema, event_time)

    def _parallelism_below(self) -> int:
        """The next operator's parallelism, if the user says nothing: the environment's, or what the edge allows."""
        for part in self._inputs:
            if part.partitioning == FORWARD:
                return self._env._graph[part.source].parallelism
            if part.partitioning in (_GLOBAL_KEY, TO_ONE):
                return 1
        return self._env.parallelism

    def _function(
        self,
        kind: str,
        operator: Callable[..., Operator],
        fn: Any,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None,
    ) -> DataStream:
        check_function(kind, fn)
        output = check_schema(kind, schema)
        schemas = check_sides(kind, side_outputs)
        sides = {tag: Side(side, times.after_function(self._event_time, side)) for tag, side in schemas.items()}
        event_time = times.after_function(self._event_time, output)
        return self._then(kind, partial(operator, fn, output, schemas), output, event_time, sides)

    def _project(self, kind: str, columns: Columns) -> DataStream:
        """Computed columns; the event time's comes along hidden if it is not among them."""
        event_time = self._event_time
        if event_time is not None and event_time.column not in dict(columns):
            columns += ((HIDDEN_COLUMN, column_expression(event_time.column, self._schema)),)
            event_time = replace(event_time, column=HIDDEN_COLUMN)
        schema = result_schema(columns)
        times.check_still_time(kind, event_time, schema)
        return self._then(kind, partial(Project, columns, schema), schema, event_time)

    def _shown(self) -> DataStream:
        """This stream without the hidden column."""
        return DataStream(self._env, self._with_schema(self.schema, "project"), self.schema, None)

    def _with_schema(self, schema: pa.Schema, kind: str) -> tuple[Upstream, ...]:
        """The inputs, each cut to the columns of `schema` before its rows are dealt."""
        if self._schema.equals(schema):
            return self._inputs
        operator = partial(Project, select_expressions(self._schema, *schema.names), schema)
        graph = self._env._graph
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
                    event_time=self._event_time if HIDDEN_COLUMN in schema.names else None,
                    attributes={"kind": kind},
                ),
            )
            for part in self._inputs
        )

    def _dealt(self, partitioning: Partitioning) -> tuple[Upstream, ...]:
        return tuple(replace(part, partitioning=partitioning) for part in self._inputs)

    def _with_partitioning(self, partitioning: Partitioning) -> DataStream:
        return DataStream(self._env, self._dealt(partitioning), self._schema, self._event_time)

    def _last(self, what: str) -> int:
        if len(self._inputs) > 1:
            raise PlanError(f"{what}: a union is no operator of its own; call it on the streams before union()")
        return self._inputs[0].source


def _column(field: pa.Field | None) -> str:
    return "no column" if field is None else f"{field.name!r} {field.type}"


def _common_field(fields: list[pa.Field]) -> pa.Field:
    """Nullable if one of them is."""
    return fields[0].with_nullable(any(field.nullable for field in fields)).remove_metadata()
