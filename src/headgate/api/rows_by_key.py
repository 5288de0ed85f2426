"""`RowsByKey`: the rows of a plan by key, and the operators that need keys: aggregates, windows, functions with
state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa

from headgate.api.checks import check_columns, check_named, check_names, check_schema, check_sides
from headgate.api.event_time import (
    AFTER_WINDOW,
    after_function,
    on_null_time,
    out_of_orderness,
    required,
    visible,
)
from headgate.api.planned_rows import PlannedRows
from headgate.errors import PlanError
from headgate.operators.aggregates.aggregates import Aggregate, decimal_sums, key_fields
from headgate.operators.aggregates.running_aggregate import RunningAggregate, running_schema
from headgate.operators.windows.window_kinds import (
    AnyWindows,
    CountWindows,
    Sessions,
    TimeWindows,
    Windows,
    window_schema,
)
from headgate.plan.graph import EventTime, Partitioning, Side
from headgate.quantities import duration_text

if TYPE_CHECKING:
    from headgate.operators.aggregates.top_rows import TopRows  # few jobs need it
    from headgate.operators.keyed.process_function import KeyedFunction

Aggregates = tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, eq=False)
class RowsByKey:
    """Rows that are partitioned by the columns `keys`. Without columns, all rows have one global key."""

    rows: PlannedRows
    keys: tuple[str, ...]

    @classmethod
    def of(cls, rows: PlannedRows, columns: Sequence[str]) -> RowsByKey:
        """Partition rows by columns. Raises PlanError for columns that do not exist or cannot be keys."""
        keys = check_columns("key_by", columns, visible(rows.schema))
        key_fields(keys, rows.schema)  # some types, such as lists, cannot be keys
        return cls(rows.partitioned(Partitioning("key_group", keys)), keys)

    def running(self, aggregates: Aggregates, final: bool) -> PlannedRows:
        """Add running aggregates, and return their output. With `final`, they emit their output only when the input
        ends."""
        self.rows.check_append_only("aggregate")
        by_time = any(aggregate.kind in ("first", "last") for _, aggregate in aggregates)
        time = self.required_time("first and last") if by_time else None
        rows = self._sent(aggregates, time)
        operator = partial(
            RunningAggregate,
            keys=self.keys,
            aggregates=aggregates,
            input_schema=rows.schema,
            final=final,
            time_column=None if time is None else time.column,
            time_offset=0 if time is None else time.offset,
        )
        schema = running_schema(self.keys, aggregates, rows.schema, None if time is None else time.column)
        upserts_by = None if final else self.keys
        sums = _sums(aggregates, rows.schema)
        return rows.then("aggregate", operator, schema, None, upserts_by=upserts_by, at_end=final, **sums)

    def windowed(
        self,
        windows: AnyWindows,
        aggregates: Aggregates,
        lateness: int,
        late_tag: str,
        top: TopRows | None = None,
    ) -> PlannedRows:
        """Add aggregates per window, and return their output. With `top`, return the rows of `top` per window.

        `lateness` is in microseconds. If `late_tag` is not empty, late rows go to the side output of this name.
        """
        if isinstance(windows, CountWindows):
            return self._counted(windows, aggregates, top)
        self.rows.check_append_only("window")
        time = self.window_time(windows)
        column, offset = (None, 0) if time is None else (time.column, time.offset)
        options = {}
        if top is not None:
            from headgate.operators.ranked_rows import ROWS, ranked_schema

            aggregates = ((ROWS, top),)
        rows = self.rows if late_tag else self._sent(aggregates, time)
        schema = window_schema(self.keys, column, windows, aggregates, rows.schema, time_offset=offset)
        if top is not None:
            schema = options["output"] = ranked_schema(schema, top)
        operator = partial(
            operator_of(windows, is_ranked=top is not None),
            keys=self.keys,
            time_column=column,
            time_offset=offset,
            windows=windows,
            aggregates=aggregates,
            input_schema=rows.schema,
            on_null_time=on_null_time(rows.graph, rows.inputs),
            allowed_lateness=lateness,
            late_tag=late_tag,
            **options,
        )
        sides = {late_tag: Side(rows.schema, time)} if late_tag else {}
        attributes = {"shown": _shown_windows(windows, top), **_sums(aggregates, rows.schema)}
        if time is not None:
            bound = f"{out_of_orderness(rows.graph, rows.inputs)}, allowed_lateness={lateness / 1e6:g} s"
            attributes = {"bound": bound, "by_time": time.column, **attributes}
        rank = ("rank",) if top is not None and top.ranked else ()
        upserts_by = (*self.keys, *windows.result_key, *rank) if lateness else None
        after = None if time is None else AFTER_WINDOW
        return rows.then("window", operator, schema, after, sides, upserts_by=upserts_by, **attributes)

    def _counted(self, windows: CountWindows, aggregates: Aggregates, top: TopRows | None) -> PlannedRows:
        """Add aggregates per window by count, and return their output. With `top`, return the rows of `top`."""
        from headgate.operators.windows.count_window import CountWindowAggregate, count_window_schema

        self.rows.check_append_only("window")
        kind: type[CountWindowAggregate] = CountWindowAggregate
        options = {}
        if top is not None:
            from headgate.operators.ranked_rows import ROWS, TopInCountWindows, ranked_schema

            kind, aggregates = TopInCountWindows, ((ROWS, top),)
        rows = self._sent(aggregates, None)
        schema = count_window_schema(self.keys, aggregates, rows.schema)
        if top is not None:
            schema = options["output"] = ranked_schema(schema, top)
        operator = partial(kind, self.keys, windows=windows, aggregates=aggregates, input_schema=rows.schema, **options)
        shown = _shown_windows(windows, top)
        return rows.then("window", operator, schema, None, counts=str(windows), shown=shown)

    def _sent(self, aggregates: Aggregates, time: EventTime | None) -> PlannedRows:
        """Return the rows with only the columns that aggregates need: those that they read, the keys and the time."""
        used = {*self.keys} if time is None else {*self.keys, time.column}
        for _, aggregate in aggregates:
            if aggregate.reads is None:
                return self.rows
            used |= aggregate.reads
        return self.rows.sending(used)

    def window_time(self, windows: AnyWindows) -> EventTime | None:
        """Return the event time that windows need, or None for windows by the clock or by count. Raises PlanError if it
        is missing."""
        by_time = not isinstance(windows, CountWindows) and not windows.by_clock
        return self.required_time("window") if by_time else None

    def ranked(self, top: TopRows, final: bool) -> PlannedRows:
        """Add an operator that emits the rows that `top` chooses for each key, and return its output.

        It emits them after each batch that changes them, with `final` only at the end of the input. Raises PlanError.
        """
        from headgate.operators.first_rows import FirstRows
        from headgate.operators.ranked_rows import ROWS, RunningTop, ranked_schema

        rows, aggregates = self.rows, ((ROWS, top),)
        rows.check_append_only("top")
        ranked = ranked_schema(running_schema(self.keys, aggregates, rows.schema), top)
        names = [*visible(rows.schema).names, *(name for name in ranked.names if name not in rows.schema.names)]
        output = pa.schema([ranked.field(name) for name in names])
        operator = partial(
            RunningTop,
            keys=self.keys,
            aggregates=aggregates,
            input_schema=rows.schema,
            final=final,
            output=output,
        )
        upserts_by = None if final else (*self.keys, *(("rank",) if top.ranked else ()))
        rows = rows.combined(FirstRows(self.keys, top.ranking, top.most))
        return rows.then("top", operator, output, None, upserts_by=upserts_by, at_end=final, shown=top.shown)

    def deduplicated(self, keep: str, ttl: int | None) -> PlannedRows:
        """Add an operator that passes on one row of each key, and return its output. `ttl` is in microseconds."""
        from headgate.operators.deduplicate import KeepFirst, KeepLast, KeepLastToCome
        from headgate.operators.first_rows import FirstRows

        rows, time = self.rows, self.rows.event_time
        rows.check_append_only("deduplicate")
        timed: dict[str, Any] = {"ttl": ttl}
        if time is not None:
            timed |= {"time_column": time.column, "time_offset": time.offset}
        kind: Any = KeepFirst
        if keep == "last":
            kind = KeepLastToCome if time is None else KeepLast
        if kind is KeepLastToCome or (kind is KeepFirst and ttl is None):
            timed = {}  # the operator keeps no times
            rows = rows.combined(FirstRows(self.keys, later_first=keep == "last"))
        elif time is not None and kind is KeepLast and _has_event_times(rows, time):
            rows = rows.combined(FirstRows(self.keys, ((time.column, True),), later_first=True))
        operator = partial(kind, self.keys, input_schema=rows.schema, **timed)
        upserts_by = self.keys if keep == "last" else None
        shown = self._shown_choice(keep) + ("" if ttl is None else f", ttl {duration_text(ttl)}")
        return rows.then("deduplicate", operator, rows.schema, time, upserts_by=upserts_by, shown=shown)

    def last_rows(self) -> PlannedRows:
        """Add an operator that emits the last row of each key when the input ends, and return its output."""
        from headgate.operators.first_rows import FirstRows
        from headgate.operators.last_rows import LastRows, last_rows_schema

        rows, time = self.rows, self.rows.event_time
        rows.check_append_only("deduplicate")
        output = last_rows_schema(visible(rows.schema))
        timed = {} if time is None else {"time_column": time.column, "time_offset": time.offset}
        operator = partial(LastRows, self.keys, input_schema=rows.schema, output=output, **timed)
        if _has_event_times(rows, time):
            rows = rows.combined(FirstRows(self.keys, () if time is None else ((time.column, True),), later_first=True))
        shown = f"{self._shown_choice('last')} at the end"
        return rows.then("deduplicate", operator, output, None, at_end=True, shown=shown)

    def _shown_choice(self, keep: str) -> str:
        """Return what the plan says about the rows that `deduplicate` passes on."""
        return f"the {keep} row by {', '.join(self.keys)}"

    def process(
        self, function: KeyedFunction, schema: pa.Schema, side_outputs: Mapping[str, pa.Schema] | None
    ) -> PlannedRows:
        """Add a function with state, and return its output. The function may make append-only rows from changes."""
        rows, time = self.rows.changes(), self.rows.event_time
        output, schemas = check_schema("process", schema), check_sides("process", side_outputs)
        kind, checked = _operator_for(function)
        operator = partial(
            kind,
            checked,
            self.keys,
            input_schema=rows.schema,
            schema=output,
            sides=schemas,
            time_column=None if time is None else time.column,
            time_offset=0 if time is None else time.offset,
        )
        sides = {tag: Side(side, after_function(time, side)) for tag, side in schemas.items()}
        timed: dict[str, Any] = {} if time is None else {"by_time": time.column}
        return rows.then("process", operator, output, after_function(time, output), sides, **timed)

    def required_time(self, call: str) -> EventTime:
        """Return the event time of the rows. `call` is the method that needs it, for the error.

        Raises PlanError if the rows have no event time. The error names the operator at which it was lost.
        """
        return required(call, self.rows.event_time, self.rows.graph, self.rows.inputs)

    def checked(self, unnamed: Sequence[object], aggregates: dict[str, Aggregate]) -> Aggregates:
        """Return the user's aggregates by name. Raises PlanError if a column does not exist.

        The types of the columns are checked later, when the output's schema is made.
        """
        check_named("aggregate", unnamed, f"aggregate(total=hg.{unnamed[0] if unnamed else ''})")
        check_names("aggregate", aggregates)
        for name, spec in aggregates.items():
            if not isinstance(spec, Aggregate):
                raise PlanError(f"aggregate: {name}={spec!r} is not an aggregate; use hg.count(), hg.sum('column') ...")
            if spec.column is not None:
                check_columns(f"aggregate: {name}", [spec.column], visible(self.rows.schema))
        return tuple((name, spec.compiled(name, self.rows.schema)) for name, spec in aggregates.items())


def _shown_windows(windows: AnyWindows, top: TopRows | None) -> str:
    """Return what the plan says about windows, and about the rows that `top` chooses in them."""
    return str(windows) if top is None else f"{windows}, {top.shown}"


def operator_of(windows: TimeWindows, *, is_ranked: bool) -> Any:
    """Return the class of the operator. It is imported here, so that a job without windows does not load it."""
    match windows:
        case Windows():
            of_event_time, of_clock = _operators_of_windows(is_ranked=is_ranked)
        case Sessions():
            of_event_time, of_clock = _operators_of_sessions(is_ranked=is_ranked)
        case _:
            assert_never(windows)
    return of_clock if windows.by_clock else of_event_time


def _operators_of_windows(*, is_ranked: bool) -> tuple[Any, Any]:
    """Return the operators for event time and for the clock."""
    if is_ranked:
        from headgate.operators.ranked_rows import TopInClockWindows, TopInWindows

        return TopInWindows, TopInClockWindows
    from headgate.operators.windows.clock_windows import ClockWindows
    from headgate.operators.windows.window import WindowAggregate

    return WindowAggregate, ClockWindows


def _operators_of_sessions(*, is_ranked: bool) -> tuple[Any, Any]:
    """Return the operators for event time and for the clock."""
    if is_ranked:
        from headgate.operators.ranked_rows import TopInClockSessions, TopInSessions

        return TopInSessions, TopInClockSessions
    from headgate.operators.windows.clock_windows import ClockSessions
    from headgate.operators.windows.session_window import SessionAggregate

    return SessionAggregate, ClockSessions


def _operator_for(function: KeyedFunction) -> tuple[Any, KeyedFunction]:
    """Return the class of the operator that runs a user's function with state, and the function after a check."""
    from headgate.operators.keyed.batch_function import KeyedBatchFunction

    if isinstance(function, KeyedBatchFunction):
        from headgate.operators.keyed.keyed_batches import KeyedBatches, check_batch_function

        return KeyedBatches, check_batch_function(function)
    from headgate.operators.keyed.keyed_process import KeyedProcess, check_process_function

    return KeyedProcess, check_process_function(function)


def _sums(aggregates: Aggregates, schema: pa.Schema) -> dict[str, Any]:
    """Return the node attribute `decimal_sums`: the columns that sum decimals. Checkpoints of version 1 have floats
    there."""
    sums = decimal_sums(aggregates, schema)
    return {"decimal_sums": sums} if sums else {}


def _has_event_times(rows: PlannedRows, time: EventTime | None) -> bool:
    """Return whether the order of a time column is that of event times, which have microseconds."""
    return time is None or bool(rows.schema.field(time.column).type.unit != "ns")
