"""`DataStream`, `KeyedStream` and `WindowedStream`: what can be done to rows. Every call adds to the plan and runs
nothing. They are in one file since each is what a call of another returns; what the calls do is in `planned_rows` and
`rows_by_key`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, Self

import pyarrow as pa

from headgate.api import event_time as times
from headgate.api.checks import (
    as_columns,
    check_columns,
    check_expressions,
    check_label,
    check_named,
    check_names,
    check_parallelism,
)
from headgate.api.job_builder import JobBuilder
from headgate.api.planned_rows import PlannedRows
from headgate.api.results import check_limit
from headgate.api.rows_by_key import RowsByKey
from headgate.connectors.connector import Sink
from headgate.errors import ConfigError, PlanError
from headgate.operators.aggregates.aggregates import Aggregate
from headgate.operators.keyed.process_function import KeyedProcessFunction
from headgate.operators.lookup import Lookup, lookup_schema
from headgate.operators.lookup_source import lookup_source
from headgate.operators.operator import check_function
from headgate.operators.rows import (
    Filter,
    FilterRows,
    FlatMapRows,
    MapBatches,
    MapRows,
    filter_predicate,
    select_expressions,
    with_columns_expressions,
)
from headgate.operators.side_output import SideOutput
from headgate.operators.windows.window import Windows
from headgate.other_names import OtherNames
from headgate.plan.graph import BROADCAST, FORWARD, LOAD_AWARE, REBALANCE, RESCALE, SHUFFLE, TO_ONE, Partitioning
from headgate.quantities import microseconds

_NO_KEY = (
    "{} is for each key, and there is none; write key_by('column') right before it, or key_by() for one global key"
)


class _LastOperator(OtherNames, ABC):
    """Settings of the operator that was written last."""

    _jobs: JobBuilder

    @abstractmethod
    def _last(self, what: str) -> int:
        """The id of that operator's node."""

    def name(self, name: str) -> Self:
        """Name it, for metrics, errors and `explain`; a second operator of that name becomes `name#2`."""
        self._jobs.graph.change(self._last("name"), name=check_label("name", name))
        return self

    def uid(self, uid: str) -> Self:
        """Give it an identity that stays when the pipeline around it changes; unique in a job."""
        self._jobs.graph.change(self._last("uid"), uid=check_label("uid", uid))
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Give it its own number of subtasks instead of the environment's."""
        node_id = self._last("set_parallelism")
        most = self._jobs.config.max_parallelism
        checked = check_parallelism(f"set_parallelism of {self._jobs.graph[node_id].name!r}", parallelism, most)
        self._jobs.graph.change(node_id, parallelism=checked)
        return self

    def disable_chaining(self) -> Self:
        """Run it in a task of its own, not called directly by the operator before it."""
        self._jobs.graph.change(self._last("disable_chaining"), chaining=False)
        return self


class StreamSink(_LastOperator):
    """A sink in the plan; `env.execute()` runs it."""

    def __init__(self, program: JobBuilder, node_id: int) -> None:
        self._jobs = program
        self._node_id = node_id

    def _last(self, what: str) -> int:
        return self._node_id


@dataclass(frozen=True, eq=False, repr=False)
class DataStream(_LastOperator):
    """Rows on their way. Immutable, and may be used more than once: each use gets all rows.

    An unknown column, a missing schema and whatever else can be checked is a PlanError at the call that writes it.
    """

    _jobs: JobBuilder
    _rows: PlannedRows

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return times.visible(self._rows.schema)

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
        return self._stream(self._rows.function("map_batches", MapBatches, fn, schema, side_outputs))

    def map(
        self,
        fn: Callable[[dict[str, Any]], dict[str, Any] | SideOutput],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """`fn` gets a row as a dict and returns one, or `hg.SideOutput(tag, row)`. Convenient, and far slower than
        `map_batches`."""
        return self._stream(self._rows.function("map", MapRows, fn, schema, side_outputs))

    def flat_map(
        self,
        fn: Callable[[dict[str, Any]], Iterable[dict[str, Any] | SideOutput]],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """`fn` gets a row as a dict and returns any number of them, and of `hg.SideOutput(tag, row)`. Convenient, and
        far slower than `map_batches`."""
        return self._stream(self._rows.function("flat_map", FlatMapRows, fn, schema, side_outputs))

    def side_output(self, tag: str) -> DataStream:
        """The rows that the operator written last puts aside under `tag`: functions with `side_outputs`, windows with
        `late_output`, sources of lines with "bad". Rows of a side output that is not read are dropped."""
        return self._stream(self._rows.side_output(tag))

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
        before = self._rows
        predicate = filter_predicate(condition, before.schema, rows)
        operator = partial(FilterRows if rows else Filter, predicate, before.schema)
        return self._stream(before.then("filter", operator, before.schema, before.event_time))

    def select(self, /, *columns: str, **expressions: str) -> DataStream:
        """Only these columns, then the given SQL expressions: `select("a", b="c + 1")`."""
        check_expressions("select", expressions)
        return self._stream(self._rows.project("select", select_expressions(self.schema, *columns, **expressions)))

    def with_columns(self, /, *unnamed: Never, **expressions: str) -> DataStream:
        """All columns, and these besides: `with_columns(late="delay > 15")`. A column of that name is replaced."""
        check_named("with_columns", unnamed, 'with_columns(total="a + b")')
        check_expressions("with_columns", expressions)
        return self._stream(self._rows.project("with_columns", with_columns_expressions(self.schema, **expressions)))

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
        source = lookup_source(self._jobs.readable(table))
        check_names("lookup", source.schema.names)
        rows = self._rows
        schema = lookup_schema(source, on, how=how, columns=columns, suffix=suffix, input_schema=rows.schema)
        operator = partial(Lookup, source, on, how=how, columns=columns, suffix=suffix, input_schema=rows.schema)
        return self._stream(rows.then("lookup", operator, schema, rows.event_time))

    def union(self, *others: DataStream) -> DataStream:
        """The rows of all these streams, whose columns must be the same; there is no order between the streams.

        Event time stays if all of them have it in a column of the same name.
        """
        for other in others:
            if not isinstance(other, DataStream) or other._jobs is not self._jobs:
                raise PlanError(f"union: {other!r} is not a stream of this environment")
        return self._stream(self._rows.union([other._rows for other in others]))

    # Partitioning: which subtask of the next operator a row goes to

    def key_by(self, *columns: str) -> KeyedStream:
        """Rows with equal keys go to the same subtask. Without columns all rows have one global key."""
        by_key = RowsByKey.of(self._rows, columns)
        return KeyedStream(self._jobs, by_key.rows, by_key)

    def rebalance(self, *, load_aware: bool = False) -> DataStream:
        """Deal batches in turn to all subtasks of the next operator; with `load_aware` each to the least loaded of the
        next four, so that a slow subtask gets less. Load is what waits in the channel's buffers, so it tells only once
        these fill: of rows that fit into them a slow subtask gets as many as the others, and in batch mode always."""
        if not isinstance(load_aware, bool):
            raise PlanError(f"rebalance: load_aware={load_aware!r} must be True or False")
        return self._partitioned(LOAD_AWARE if load_aware else REBALANCE)

    def rescale(self) -> DataStream:
        """Deal batches in turn to a subtask's neighbours only: with 2 subtasks here and 4 below, subtask 0 serves 0 and
        1, subtask 1 serves 2 and 3. Fewer channels than `rebalance`, and an uneven load stays within its neighbours."""
        return self._partitioned(RESCALE)

    def shuffle(self) -> DataStream:
        """Distribute each row by chance to any subtask of the next operator. The same run again distributes the same
        way, if its batches are cut the same way."""
        return self._partitioned(SHUFFLE)

    def to_one(self) -> DataStream:
        """Give all rows to subtask 0 of the next operator, which has one subtask unless it is given more."""
        return self._partitioned(TO_ONE)

    def partition_by(self, fn: Callable[[pa.RecordBatch, int], Any]) -> DataStream:
        """Distribute rows as `fn(batch, subtasks)` says: it returns an integer array, for each row the subtask of the
        next operator, from 0 on. It is called once per batch."""
        check_function("partition_by", fn)
        return self._partitioned(Partitioning("custom", function=fn))

    def broadcast(self) -> DataStream:
        """Give every row to every subtask of the next operator."""
        return self._partitioned(BROADCAST)

    def forward(self) -> DataStream:
        """Subtask i to subtask i of the next operator, which gets the same parallelism."""
        return self._partitioned(FORWARD)

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
        return StreamSink(self._jobs, self._jobs.add_sink(self._rows.shown(), sink))

    def collect(self, limit: int | None = None) -> pa.Table:
        """Run the plan now and return this stream's rows, gathered on the driver.

        Like `execute`, it runs all sinks added since the last run. With `limit` it runs this stream alone, returns
        that many rows (or fewer, if there are fewer) and cancels the job; sinks then wait for the next run.
        """
        check_limit(limit)
        return self._jobs.collect(self._rows.shown(), limit)

    def to_dataframe(self) -> Any:
        """Run the plan now into files, and return a Spark DataFrame over them; nothing is run again by using it.

        Rows do not pass through the driver. The files are in `spill_dir` and live until this process ends.
        """
        return self._jobs.to_dataframe(self._rows.shown())

    def _stream(self, rows: PlannedRows) -> DataStream:
        return DataStream(self._jobs, rows)

    def _partitioned(self, partitioning: Partitioning) -> DataStream:
        return self._stream(self._rows.partitioned(partitioning))

    def _last(self, what: str) -> int:
        return self._rows.last(what)


@dataclass(frozen=True, eq=False, repr=False)
class KeyedStream(DataStream):
    """A stream whose rows of equal keys meet in one subtask of the next operator."""

    _by_key: RowsByKey

    def window(self, windows: Windows) -> WindowedStream:
        """Group the rows of a key by event time: `hg.tumble(size)` or `hg.hop(size, every=...)`."""
        if not isinstance(windows, Windows):
            raise PlanError(f"window: {windows!r} is no window; use hg.tumble(size) or hg.hop(size, every=...)")
        self._by_key.required_time("window")
        return WindowedStream(self, windows)

    def aggregate(self, /, *unnamed: Never, final: bool = False, **aggregates: Aggregate) -> DataStream:
        """Aggregates of all rows of a key so far: the key columns, then the aggregates under their names.

        For each batch that comes in, one row for each key that it changed; with `final=True` only the last one per
        key, when a bounded input ends. Of a bounded input without rows there is no row, but with one global key
        (`key_by()`) there is one, as in SQL: counts are 0, `collect_list` is empty, all else is null.
        """
        if not isinstance(final, bool):
            raise PlanError(f"aggregate: final={final!r} must be True or False; a result cannot be called 'final'")
        return self._stream(self._by_key.running(self._by_key.checked(unnamed, aggregates), final))

    def process(
        self,
        function: KeyedProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """Call a function of yours that keeps state for each key and sets timers: see `hg.KeyedProcessFunction`.

        What it gives has `schema`, and what it gives as `hg.SideOutput(tag, rows)` the schema that `side_outputs` has
        for the tag. The key is not among the columns unless the function puts it there.
        """
        return self._stream(self._by_key.process(function, schema, side_outputs))


@dataclass(frozen=True, eq=False, repr=False)
class WindowedStream(OtherNames):
    """The rows of each key and window; `aggregate` makes one row of them."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_") or not hasattr(DataStream, name):
                return super().__getattr__(name)
            raise AttributeError(
                f"a window has no rows of its own, so it has no {name!r}; aggregate them first, for example "
                f"window(...).aggregate(rows=hg.count()).{name}(...)", name=name, obj=self,
            )  # fmt: skip

    _stream: KeyedStream
    _windows: Windows
    _lateness: int = 0
    _late_tag: str = ""

    def allowed_lateness(self, lateness: float | str | timedelta) -> WindowedStream:
        """Hold windows for so much event time after they have fired ("10 min"): a row that comes for one then emits
        the whole row of its key and window again, so the last one counts. Windows hold their memory for as long."""
        try:
            allowed = microseconds(lateness)
        except ConfigError as error:
            raise PlanError(f"allowed_lateness: {error.message}") from None
        if allowed < 0:
            raise PlanError(f"allowed_lateness: {lateness!r} must not be negative")
        return replace(self, _lateness=allowed)

    def late_output(self, tag: str) -> WindowedStream:
        """Put late rows aside, for `side_output(tag)` of the result, instead of dropping them. They are the rows as
        they came: those none of whose windows is held any more, or, with `on_null_time="late"`, without a time."""
        return replace(self, _late_tag=check_label("late_output: the tag", tag))

    def aggregate(self, /, *unnamed: Never, **aggregates: Aggregate) -> DataStream:
        """One row per key and window that has rows, when the watermark passes the window's end.

        Its columns: the keys, `window_start`, `window_end` (exclusive; both of the event-time column's type), then
        the aggregates under their names. Its event time is `window_end` minus 1 us, the last moment of the window, so
        a window over the results takes a row into the window that its own lies in. A key and window without rows gives
        no row, also with one global key (`key_by()`).
        """
        by_key = self._stream._by_key
        specs = by_key.checked(unnamed, aggregates)
        return DataStream(self._stream._jobs, by_key.windowed(self._windows, specs, self._lateness, self._late_tag))
