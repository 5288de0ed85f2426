"""`KeyedStream` and `WindowedStream`: aggregates per key, running or per window, and functions with state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Never

import pyarrow as pa

from headgate.api.checks import check_columns, check_label, check_named, check_names, check_schema, check_sides
from headgate.api.event_time import AFTER_WINDOW, after_function, on_null_time, out_of_orderness, required
from headgate.api.stream import DataStream
from headgate.errors import ConfigError, PlanError
from headgate.operators.aggregates.aggregates import Aggregate, decimal_sums
from headgate.operators.aggregates.running_aggregate import RunningAggregate, running_schema
from headgate.operators.keyed.keyed_process import KeyedProcess, check_process_function
from headgate.operators.keyed.process_function import KeyedProcessFunction
from headgate.operators.windows.window import WindowAggregate, Windows, window_schema
from headgate.other_names import OtherNames
from headgate.plan.graph import Side
from headgate.quantities import microseconds

Aggregates = tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, eq=False, repr=False)
class KeyedStream(DataStream):
    """A stream whose rows of equal keys meet in one subtask of the next operator."""

    _keys: tuple[str, ...]

    def window(self, windows: Windows) -> WindowedStream:
        """Group the rows of a key by event time: `hg.tumble(size)` or `hg.hop(size, every=...)`."""
        if not isinstance(windows, Windows):
            raise PlanError(f"window: {windows!r} is no window; use hg.tumble(size) or hg.hop(size, every=...)")
        required("window", self._event_time, self._env._graph, self._inputs)
        return WindowedStream(self, windows)

    def aggregate(self, /, *unnamed: Never, final: bool = False, **aggregates: Aggregate) -> DataStream:
        """Aggregates of all rows of a key so far: the key columns, then the aggregates under their names.

        For each batch that comes in, one row for each key that it changed; with `final=True` only the last one per
        key, when a bounded input ends. Of a bounded input without rows there is no row, but with one global key
        (`key_by()`) there is one, as in SQL: counts are 0, `collect_list` is empty, all else is null.
        """
        if not isinstance(final, bool):
            raise PlanError(f"aggregate: final={final!r} must be True or False; a result cannot be called 'final'")
        specs = self._checked(unnamed, aggregates)
        time = self._event_time
        if any(spec.kind in ("first", "last") for _, spec in specs):
            time = required("first and last", time, self._env._graph, self._inputs)
        operator = partial(
            RunningAggregate,
            keys=self._keys,
            aggregates=specs,
            input_schema=self._schema,
            final=final,
            time_column=None if time is None else time.column,
            time_offset=0 if time is None else time.offset,
        )
        schema = running_schema(self._keys, specs, self._schema, None if time is None else time.column)
        return self._then("aggregate", operator, schema, None, **_sums(specs, self._schema))

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
        time = self._event_time
        output, schemas = check_schema("process", schema), check_sides("process", side_outputs)
        operator = partial(
            KeyedProcess,
            check_process_function(function),
            self._keys,
            self._schema,
            output,
            schemas,
            time_column=None if time is None else time.column,
            time_offset=0 if time is None else time.offset,
        )
        sides = {tag: Side(side, after_function(time, side)) for tag, side in schemas.items()}
        timed = {} if time is None else {"by_time": time.column}
        return self._then("process", operator, output, after_function(time, output), sides, **timed)

    def _checked(self, unnamed: Sequence[object], aggregates: dict[str, Aggregate]) -> Aggregates:
        """Aggregates of columns that the user knows of; their schema function checks the rest."""
        check_named("aggregate", unnamed, f"aggregate(total=hg.{unnamed[0] if unnamed else ''})")
        check_names("aggregate", aggregates)
        for name, spec in aggregates.items():
            if not isinstance(spec, Aggregate):
                raise PlanError(f"aggregate: {name}={spec!r} is no aggregate; use hg.count(), hg.sum('column') ...")
            if spec.column is not None:
                check_columns(f"aggregate: {name}", [spec.column], self.schema)
        return tuple(aggregates.items())


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
        stream = self._stream
        graph, inputs = stream._env._graph, stream._inputs
        event_time = required("window", stream._event_time, graph, inputs)
        specs = stream._checked(unnamed, aggregates)
        schema = window_schema(stream._keys, event_time.column, self._windows, specs, stream._schema)
        operator = partial(
            WindowAggregate,
            keys=stream._keys,
            time_column=event_time.column,
            time_offset=event_time.offset,
            windows=self._windows,
            aggregates=specs,
            input_schema=stream._schema,
            on_null_time=on_null_time(graph, inputs),
            allowed_lateness=self._lateness,
            late_tag=self._late_tag,
        )
        sides = {self._late_tag: Side(stream._schema, stream._event_time)} if self._late_tag else {}
        bound = f"{out_of_orderness(graph, inputs)}, allowed_lateness={self._lateness / 1e6:g} s"
        attributes = {"bound": bound, "by_time": event_time.column, **_sums(specs, stream._schema)}
        return stream._then("window", operator, schema, AFTER_WINDOW, sides, **attributes)


def _sums(aggregates: Aggregates, schema: pa.Schema) -> dict[str, Any]:
    """The attribute of a node that sums decimals: its checkpoints of version 1 have floats there."""
    sums = decimal_sums(aggregates, schema)
    return {"decimal_sums": sums} if sums else {}
