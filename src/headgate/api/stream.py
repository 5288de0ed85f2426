"""`DataStream`, `KeyedStream` and `WindowedStream`: the operations on rows.

Every call adds to the plan; only `collect` and `to_dataframe` run a job. The three classes are in one file, because
calls of each class return another class. `transforms`, `partitioned`, `joins` and `chosen_rows` have further calls.
The implementation of the calls is in `planned_rows` and `rows_by_key`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Never

import pyarrow as pa

from headgate.api.checks import as_columns, check_label
from headgate.api.chosen_rows import Deduplicates, RanksByKey, RanksInWindows
from headgate.api.job_builder import JobBuilder
from headgate.api.joins import Joinable
from headgate.api.partitioned import Partitioned
from headgate.api.planned_rows import PlannedRows
from headgate.api.results import check_limit
from headgate.api.rows_by_key import RowsByKey
from headgate.api.stream_sink import LastOperator, StreamSink
from headgate.api.transforms import TransformsRows
from headgate.connectors.connector import Sink
from headgate.errors import ConfigError, PlanError
from headgate.operators.aggregates.aggregates import Aggregate
from headgate.operators.windows.window_kinds import AnyWindows, check_may_be_late, check_windows
from headgate.other_names import OtherNames
from headgate.quantities import microseconds

if TYPE_CHECKING:
    from headgate.operators.aggregates.top_rows import TopRows
    from headgate.operators.keyed.batch_function import KeyedBatchFunction
    from headgate.operators.keyed.process_function import KeyedProcessFunction

_NO_KEY = "{0} needs a key: write key_by('column') directly before {0}, or key_by() for one global key"


@dataclass(frozen=True, eq=False, repr=False)
class DataStream(
    TransformsRows["DataStream"],
    Joinable["DataStream"],
    Partitioned["DataStream"],
    Deduplicates["DataStream"],
    LastOperator,
):
    """A stream of rows in the plan. It is immutable. A program may use it more than once: each use gets all rows.

    A call raises PlanError for an unknown column, a wrong schema, and any other mistake that it can find. The examples
    of the calls use this stream:

    >>> env = hg.StreamEnvironment()
    >>> rows = [{"city": "Rome", "km": 7}, {"city": "Oslo", "km": 3}, {"city": "Rome", "km": 5}]
    >>> trips = env.from_source(hg.sources.iterable([rows]))
    """

    _jobs: JobBuilder
    _rows: PlannedRows

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"{type(self).__name__}({columns})"

    if not TYPE_CHECKING:

        def __getitem__(self, what: object) -> object:
            raise TypeError(
                f'a {type(self).__name__} is not a frame: its rows flow when env.execute() runs. Write select("a") for '
                'columns, filter("a > 1") for rows, collect(limit=10) to get some rows on the driver'
            )

    # Other columns and rows: see also `TransformsRows` and `Joinable`

    def lookup(
        self,
        table: Any,
        *,
        on: str | Sequence[str],
        how: Literal["left", "inner"] = "left",
        columns: Sequence[str] | None = None,
        suffix: str | None = None,
        refresh: str | float | timedelta | None = None,
        schema: pa.Schema | None = None,
        cache_rows: int | None = None,
        cache_ttl: str | float | timedelta | None = None,
        concurrency: int | None = None,
        timeout: str | float | timedelta | None = None,
        retries: int | None = None,
        batch_keys: int | None = None,
    ) -> DataStream:
        """Add columns to each row, from the row of a table or function that has the same values in the columns `on`.

        `table` is a pyarrow Table, a frame of pandas or polars, the path of a parquet or CSV file, or a Spark
        DataFrame. A Spark job writes a Spark DataFrame to files during this call. Each subtask loads the whole table,
        and loads a file again every `refresh`. A row without a match gets nulls; with `how="inner"` the row is dropped.
        A null in `on` matches no row. `columns` are the columns to add, by default all except `on`. `suffix` is added
        to names that the stream already has. If the table has a key twice, the job fails.

        `table` may also be a function, also an `async` one. It gets a record batch with the different keys, at most
        `batch_keys` (1000). It returns a table, a batch or a list of dicts with the key columns and those of `schema`:
        at most one row for each key. A subtask makes `concurrency` (4) calls at a time and waits for them, so that a
        slow function shows as back-pressure; the metric `lookup_wait_s` counts the time. A call may take `timeout` (30
        s), and a failed call is repeated `retries` times (2). Each subtask keeps the rows of `cache_rows` keys
        (100,000; 0: none), for `cache_ttl` (default: for ever). Rows keep their order. Also: `hg.lookups.adbc(...)`.

        >>> countries = pa.table({"city": ["Rome"], "country": ["Italy"]})
        >>> trips.lookup(countries, on="city").collect()["country"].to_pylist()
        ['Italy', None, 'Italy']
        >>> def names(keys):
        ...     return [{"city": city, "name": city.upper()} for city in keys.column("city").to_pylist()]
        >>> trips.lookup(names, on="city", schema=pa.schema({"name": pa.string()})).collect()["name"].to_pylist()
        ['ROME', 'OSLO', 'ROME']
        """
        from headgate.api.lookup_plans import FunctionOptions, plan_lookup  # few jobs need it

        options = FunctionOptions(
            schema=schema,
            cache_rows=cache_rows,
            cache_ttl=cache_ttl,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            batch_keys=batch_keys,
        )
        rows = self._rows
        plan = plan_lookup(
            self._jobs,
            table,
            on,
            how=how,
            columns=columns,
            suffix=suffix,
            refresh=refresh,
            options=options,
            shown=self.schema,
            input_schema=rows.schema,
        )
        drops: dict[str, Any] = {"drops_by": as_columns("lookup: on", on)} if how == "inner" else {}
        planned = rows.then("lookup", plan.operator, plan.schema, rows.event_time, shown=plan.shown, **drops)
        return self._stream(planned)

    def union(self, *others: DataStream) -> DataStream:
        """Return the rows of all these streams as one stream. The streams must have the same columns.

        There is no order between rows of different streams. The result has event time if all streams have the same
        event-time column. Upserting streams, see `changes`, must be parts of one stream, such as two filters of it.
        Otherwise call `union` before the operators that make them, or `changes` after them.

        >>> trips.filter("km > 6").union(trips.filter("km < 4")).collect().num_rows
        2
        """
        for other in others:
            if not isinstance(other, DataStream) or other._jobs is not self._jobs:
                raise PlanError(f"union: {other!r} is not a stream of this environment")
        return self._stream(self._rows.union([other._rows for other in others]))

    def changes(self) -> DataStream:
        """Return an append-only stream of the same rows: each change of a result is a row of its own.

        A running aggregate emits a row each time that a result changes: its rows replace one another. Aggregates, joins
        and file sinks refuse such a stream. After `changes`, they take all its rows.

        >>> so_far = trips.key_by("city").aggregate(km=hg.sum("km"))
        >>> sink = so_far.changes().sink_to(hg.sinks.csv("every_sum/"))
        """
        return self._stream(self._rows.changes())

    # Partitioning: see also `Partitioned`

    def key_by(self, *columns: str) -> KeyedStream:
        """Send rows with equal keys to the same subtask. Without columns, all rows have one global key.

        >>> trips.key_by("city").aggregate(final=True, km=hg.sum("km")).collect().sort_by("city").to_pylist()
        [{'city': 'Oslo', 'km': 3}, {'city': 'Rome', 'km': 12}]
        """
        by_key = RowsByKey.of(self._rows, columns)
        return KeyedStream(self._jobs, by_key.rows, by_key)

    # Operations that only a keyed stream has

    def window(self, windows: AnyWindows) -> WindowedStream:
        """Raise PlanError, because a window needs keys; see `KeyedStream.window`."""
        raise PlanError(_NO_KEY.format("window"))

    def aggregate(self, /, *unnamed: Never, final: bool = False, **aggregates: Aggregate) -> DataStream:
        """Raise PlanError, because an aggregate needs keys; see `KeyedStream.aggregate`."""
        raise PlanError(_NO_KEY.format("aggregate"))

    def process(
        self,
        function: KeyedProcessFunction | KeyedBatchFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """Raise PlanError, because a process function needs keys; see `KeyedStream.process`."""
        raise PlanError(_NO_KEY.format("process"))

    # Results

    def sink_to(self, sink: Sink) -> StreamSink:
        """Write the rows to a sink of `hg.sinks`. `env.execute()` then runs the plan.

        >>> sink = trips.filter("km > 6").sink_to(hg.sinks.printer())
        >>> result = env.execute()
        city=Rome, km=7
        """
        if not isinstance(sink, Sink):
            raise PlanError(f"sink_to: {sink!r} is not a sink; use one of hg.sinks, for example hg.sinks.printer()")
        return StreamSink(self._jobs, self._jobs.add_sink(self._rows.shown(), sink))

    def collect(self, limit: int | None = None) -> pa.Table:
        """Run the plan now, and return this stream's rows as a table on the driver.

        Like `execute`, `collect` also runs all sinks that were added since the last run. With `limit`, `collect` runs
        only this stream, cancels the job when it has `limit` rows, and returns them. The sinks then wait for the next
        run.

        >>> trips.collect(limit=1).to_pylist()
        [{'city': 'Rome', 'km': 7}]
        """
        check_limit(limit)
        return self._jobs.collect(self._rows.shown(), limit)

    def to_dataframe(self) -> Any:
        """Run the plan now, as `collect` does, and return this stream's rows as a Spark DataFrame.

        The job writes the rows to files in `spill_dir`. The files stay until this process ends. Rows therefore do not
        pass through the driver, and a use of the DataFrame does not run the job again. Needs an environment with Spark.

        >>> trips.to_dataframe().where("km > 6").count()
        1
        """
        return self._jobs.to_dataframe(self._rows.shown())

    def _stream(self, rows: PlannedRows) -> DataStream:
        return DataStream(self._jobs, rows)

    def _last(self, call: str) -> int:
        return self._rows.last(call)


@dataclass(frozen=True, eq=False, repr=False)
class KeyedStream(DataStream, RanksByKey[DataStream]):
    """A stream by key: all rows of a key go to one subtask of the next operator.

    >>> at = pa.array([30, 90, 5400], pa.timestamp("s", tz="UTC"))
    >>> rows = pa.record_batch({"city": ["Rome", "Oslo", "Rome"], "km": [7, 3, 5], "at": at})
    >>> env = hg.StreamEnvironment()
    >>> trips = env.from_source(hg.sources.iterable([rows]), watermark=hg.Watermark("at"))
    >>> by_city = trips.key_by("city")
    """

    _by_key: RowsByKey

    def window(self, windows: AnyWindows) -> WindowedStream:
        """Group the rows of each key into windows, by time or by count.

        `hg.tumble(size)`, `hg.hop(size, every=...)` and `hg.session(gap)` go by event time, or by the clock with
        `time="processing"`. `hg.count_window(size)` groups each `size` rows of a key, and needs no event time.

        >>> by_city.window(hg.tumble("1 h")).aggregate(km=hg.sum("km")).collect().sort_by("km")["km"].to_pylist()
        [3, 5, 7]
        """
        check_windows(windows)
        self._by_key.window_time(windows)
        return WindowedStream(self, windows)

    def aggregate(self, /, *unnamed: Never, final: bool = False, **aggregates: Aggregate) -> DataStream:
        """Compute aggregates over all rows of each key so far. The output has the key columns and the named aggregates.

        After each input batch, the operator emits one row for each key in the batch. This row replaces the key's last
        row: the stream upserts by key, and only some sinks take it (see `changes`). With `final=True`, the operator
        emits only one row per key, when its input ends: an input without end ends with `job.stop(drain=True)` only. An
        input without rows gives no row. The exception is one global key (`key_by()`): it gives one row, as in SQL.
        Counts are then 0, `collect_list` is empty, your own aggregates give the result of `create`, and all others are
        null.

        >>> by_city.aggregate(final=True, trips=hg.count(), km=hg.sum("km")).collect().sort_by("city").to_pylist()
        [{'city': 'Oslo', 'trips': 1, 'km': 3}, {'city': 'Rome', 'trips': 2, 'km': 12}]
        """
        if not isinstance(final, bool):
            raise PlanError(f"aggregate: final={final!r} must be True or False; a result cannot be called 'final'")
        return self._stream(self._by_key.running(self._by_key.checked(unnamed, aggregates), final))

    def process(
        self,
        function: KeyedProcessFunction | KeyedBatchFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """Call your `hg.KeyedProcessFunction`, which keeps state for each key and sets timers.

        The function may also be a `hg.KeyedBatchFunction`, which is called for all keys of a batch at once.

        The rows that the function emits have `schema`. Rows in `hg.SideOutput(tag, rows)` have the schema that
        `side_outputs` has for this tag. The output has the key columns only if the function adds them.

        >>> class Total(hg.KeyedProcessFunction):
        ...     km = hg.ValueState(pa.int64())
        ...     def process_element(self, row, ctx):
        ...         self.km.update((self.km.value() or 0) + row["km"])
        ...         yield {"city": row["city"], "km_so_far": self.km.value()}
        >>> schema = pa.schema({"city": pa.string(), "km_so_far": pa.int64()})
        >>> by_city.process(Total(), schema=schema).filter("city = 'Rome'").collect()["km_so_far"].to_pylist()
        [7, 12]
        """
        return self._stream(self._by_key.process(function, schema, side_outputs))


@dataclass(frozen=True, eq=False, repr=False)
class WindowedStream(RanksInWindows[DataStream], OtherNames):
    """A keyed stream, grouped into windows. `aggregate` makes one row for each key and window.

    >>> hours = by_city.window(hg.tumble("1 h"))  # `by_city` is from `KeyedStream`
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_") or not hasattr(DataStream, name):
                return super().__getattr__(name)
            raise AttributeError(
                f"a window has no rows of its own, so it has no {name!r}; aggregate them first, for example "
                f"window(...).aggregate(rows=hg.count()).{name}(...)", name=name, obj=self,
            )  # fmt: skip

    _stream: KeyedStream
    _windows: AnyWindows
    _lateness: int = 0
    _late_tag: str = ""

    def allowed_lateness(self, lateness: float | str | timedelta) -> WindowedStream:
        """Keep each window for this much event time after it has fired.

        If a row arrives for such a window, the operator emits the window's output row for its key again, with new
        values. A session may grow when a row arrives late; its new row then replaces the key's earlier rows within its
        bounds. So the stream upserts by key and window; see `changes`. A window uses memory until it is removed.

        >>> counts = hours.allowed_lateness("10 min").aggregate(trips=hg.count())
        """
        check_may_be_late("allowed_lateness", self._windows)
        try:
            allowed = microseconds(lateness)
        except ConfigError as error:
            raise PlanError(f"allowed_lateness: {error.message}") from None
        if allowed < 0:
            raise PlanError(f"allowed_lateness: {lateness!r} must not be negative")
        return replace(self, _lateness=allowed)

    def late_output(self, tag: str) -> WindowedStream:
        """Send late rows to a side output instead of dropping them. Read it with `side_output(tag)` of the result.

        A row is late if all its windows have been removed. For `hg.session(gap)`, the window that counts is that of a
        session with this row alone, which ends `gap` after the row. With `on_null_time="late"`, a row without a time is
        late too. Late rows have all columns of the input.

        >>> counts = hours.late_output("late").aggregate(trips=hg.count())
        >>> late_rows = counts.side_output("late")
        """
        check_may_be_late("late_output", self._windows)
        return replace(self, _late_tag=check_label("late_output: the tag", tag))

    def aggregate(self, /, *unnamed: Never, **aggregates: Aggregate) -> DataStream:
        """Emit one row per key and window when the watermark, or the clock, reaches the end of the window.

        The output has the key columns, `window_start`, `window_end` and the named aggregates. `window_end` is
        exclusive, and both have the type of the event-time column. The event time of an output row is the last
        microsecond of its window; windows after this operator use this time. With `time="processing"`, the bounds are
        timestamp[us, UTC], and output rows have no event time. With `hg.count_window`, there are no bounds and no event
        time. A window without rows gives no row, even with one global key (`key_by()`).

        >>> hours.aggregate(trips=hg.count(), km=hg.sum("km")).select("city", "trips", "km").collect(limit=1).num_rows
        1
        """
        specs = self._by_key.checked(unnamed, aggregates)
        rows = self._by_key.windowed(self._windows, specs, self._lateness, self._late_tag)
        return DataStream(self._stream._jobs, rows)

    @property
    def _by_key(self) -> RowsByKey:
        return self._stream._by_key

    def _ranked(self, top: TopRows) -> DataStream:
        rows = self._by_key.windowed(self._windows, (), self._lateness, self._late_tag, top)
        return self._stream._stream(rows)
