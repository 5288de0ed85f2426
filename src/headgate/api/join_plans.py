"""The plan of a join of two streams: its checks, its condition, its columns and its event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from headgate.api import event_time as times
from headgate.api.checks import as_columns, check_columns
from headgate.api.planned_rows import PlannedRows
from headgate.errors import ConfigError, PlanError
from headgate.operators.joins.as_of_join import AsOfJoin
from headgate.operators.joins.columns import JoinedColumns, joined_columns
from headgate.operators.joins.conditions import Condition, Kept, SameWindow, Within
from headgate.operators.joins.join import How, Join
from headgate.operators.joins.join_side import JoinSide
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.operators.windows.window_kinds import Windows
from headgate.plan.graph import EventTime, Partitioning
from headgate.quantities import microseconds

Keys = tuple[tuple[str, str], ...]
#: For each `how`, whether the rows of the left and of the right stream need no partner.
_HOWS: dict[str, tuple[bool, bool]] = {
    "inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The condition of a join. `time_of` is the side (0 left, 1 right) from which the result has its event time, or
    None. A window join has `window`: the size, and the type of the bounds.

    Results come up to `delay` microseconds of event time after the watermark has passed them.
    """

    condition: Condition
    time_of: int | None = None
    delay: int = 0
    window: tuple[int, pa.DataType] | None = None


@dataclass(frozen=True, slots=True)
class JoinedStreams:
    """The two streams of a join, and the pairs of key columns."""

    call: str
    left: PlannedRows
    right: PlannedRows
    keys: Keys

    @classmethod
    def of(cls, call: str, left: PlannedRows, right: PlannedRows, on: Any) -> JoinedStreams:
        """Check the streams and the keys of a call."""
        names = dict(on) if isinstance(on, Mapping) else {name: name for name in as_columns(f"{call}: on", on)}
        if not names:
            raise PlanError(f"{call}: on= needs at least one column")
        mine = check_columns(f"{call}: on", names, times.visible(left.schema))
        its = check_columns(f"{call}: on, in the other stream", names.values(), times.visible(right.schema))
        left.check_append_only(call)
        if call == "join_as_of":  # right rows replace one another in any case
            right = right.changes()
        right.check_append_only(call)
        return cls(call, left, right, tuple(zip(mine, its, strict=True)))

    def join(self, within: Any, window: Any, ttl: Any, how: Any, suffix: str | None) -> PlannedRows:
        """Plan the call `join` with these arguments, and return its output."""
        if how not in _HOWS:
            raise PlanError(f"join: how={how!r} must be 'inner', 'left', 'right' or 'full'")
        given = [name for name, value in (("within", within), ("window", window), ("ttl", ttl)) if value is not None]
        if len(given) != 1:
            raise PlanError(
                "join: give one of within=, window= and ttl=: without a bound of time, state would grow without end; "
                f"given: {', '.join(given) or 'none'}"
            )
        if within is not None:
            plan = self.within(within, how)
        else:
            plan = self.in_window(window) if window is not None else self.kept(ttl, how)
        return self.joined(plan, how, suffix)

    def join_as_of(self, how: Any, suffix: str | None) -> PlannedRows:
        """Plan the call `join_as_of` with these arguments, and return its output."""
        if how not in ("left", "inner"):
            raise PlanError(f"join_as_of: how={how!r} must be 'left' or 'inner'")
        self.event_times()
        columns = self.columns(how, suffix, time_of=0)
        operator = partial(AsOfJoin, *self._both_sides(how), columns=columns)
        return self.planned(operator, columns.schema, self._event_time(0, columns), shown=how)

    def event_times(self) -> tuple[EventTime, EventTime]:
        """Return the event times of both streams. Raises PlanError if a stream has none."""
        left, right = self.left, self.right
        of_left = times.required(self.call, left.event_time, left.graph, left.inputs)
        of_right = times.required(f"{self.call}: the other stream", right.event_time, right.graph, right.inputs)
        return of_left, of_right

    def within(self, bounds: object, how: How) -> JoinPlan:
        """Return the plan of an interval join."""
        left_time, _ = self.event_times()
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise PlanError(f"{self.call}: within={bounds!r} must be a pair: the lower bound, and the upper bound")
        lower, upper = bounds
        columns = times.visible(self.left.schema)
        if isinstance(lower, str) and lower in columns.names:
            if lower != left_time.column:
                raise PlanError(
                    f"{self.call}: the lower bound of within= is a duration, or the event-time column "
                    f"{left_time.column!r}: with {lower!r}, rows of the other stream would be kept without end"
                )
            lower = 0
        lower = self._duration("within", lower)
        if isinstance(upper, str) and upper in columns.names:
            if not pa.types.is_timestamp(kind := columns.field(upper).type):
                raise PlanError(f"{self.call}: within: column {upper!r} is {kind}, and a bound must be a timestamp")
            time_of = {"inner": 1, "right": 1}.get(how)
            return JoinPlan(Within(lower, upper_column=upper), time_of, max(-lower, 0) if time_of else 0)
        upper = self._duration("within", upper)
        if lower > upper:
            raise PlanError(f"{self.call}: within={tuple(bounds)!r}: the lower bound is above the upper bound")
        time_of = {"inner": 0, "left": 0, "right": 1}.get(how)
        delay = {0: max(upper, 0), 1: max(-lower, 0), None: 0}[time_of]
        return JoinPlan(Within(lower, upper), time_of, delay)

    def in_window(self, windows: object) -> JoinPlan:
        """Return the plan of a window join."""
        left_time, _ = self.event_times()
        if not isinstance(windows, Windows) or windows.size != windows.every:
            raise PlanError(f"{self.call}: window={windows} must be hg.tumble(size); for other ranges use within=")
        if windows.by_clock:
            raise PlanError(f"{self.call}: window={windows} must go by event time; for rows by the clock use ttl=")
        kind = self.left.schema.field(left_time.column).type
        return JoinPlan(SameWindow(windows.size), window=(windows.size, kind))

    def kept(self, ttl: object, how: How) -> JoinPlan:
        """Return the plan of a join by the clock."""
        if how != "inner":
            raise PlanError(
                f"{self.call}: with ttl=, how={how!r} is not possible: a partner may always come; use within="
            )
        kept = self._duration("ttl", ttl)
        if kept <= 0:
            raise PlanError(f"{self.call}: ttl={ttl!r} must be above 0")
        return JoinPlan(Kept(kept))

    def joined(self, plan: JoinPlan, how: How, suffix: str | None) -> PlannedRows:
        """Add the join, and return its output."""
        columns = self.columns(how, suffix, time_of=plan.time_of, window=plan.window)
        event_time = times.AFTER_WINDOW if plan.window is not None else self._event_time(plan.time_of, columns)
        sides, condition = self._both_sides(how), plan.condition
        operator = partial(Join, *sides, condition=condition, columns=columns, delay=plan.delay)
        return self.planned(
            operator, columns.schema, event_time, by_clock=condition.by_clock, shown=f"{how}, {condition}"
        )

    def columns(
        self, how: How, suffix: str | None, *, time_of: int | None, window: tuple[int, pa.DataType] | None = None
    ) -> JoinedColumns:
        """Return the columns of the result. `time_of` is the side from which the result has its event time."""
        if suffix is not None and not isinstance(suffix, str):
            raise PlanError(f"{self.call}: suffix={suffix!r} must be a string")
        left, right = _HOWS[how]
        time = None if time_of is None else (self.left, self.right)[time_of].event_time
        return joined_columns(
            self.call,
            self.left.schema,
            self.right.schema,
            self.keys,
            nullable=(right, left),
            suffix=suffix,
            hidden=time_of if time is not None and time.column == HIDDEN_COLUMN else None,
            window=window,
        )

    def planned(
        self, operator: partial[Any], schema: pa.Schema, event_time: EventTime | None, *, shown: str,
        by_clock: bool = False,
    ) -> PlannedRows:  # fmt: skip
        """Add the operator, which reads both streams by key, and return its output."""
        left_keys, right_keys = zip(*self.keys, strict=True)
        left = self.left.partitioned(Partitioning("key_group", left_keys))
        right = self.right.partitioned(Partitioning("key_group", right_keys))
        inputs = (*left.inputs, *(replace(part, port=1) for part in right.inputs))
        both = PlannedRows(self.left.graph, inputs, schema, None)
        return both.then(self.call, operator, schema, event_time, shown=shown, **self._timed(by_clock))

    def _timed(self, by_clock: bool) -> dict[str, Any]:
        """Return the facts about event time for reports."""
        if by_clock:
            return {}
        left, right = self.event_times()
        bounds = [times.out_of_orderness(rows.graph, rows.inputs) for rows in (self.left, self.right)]
        by_time = left.column if left.column == right.column else f"{left.column} and {right.column}"
        return {"bound": " and ".join(dict.fromkeys(bounds)), "by_time": by_time}

    def _both_sides(self, how: How) -> list[JoinSide]:
        streams, keys = (self.left, self.right), zip(*self.keys, strict=True)
        return [self._side(*each) for each in zip(streams, keys, _HOWS[how], strict=True)]

    def _side(self, rows: PlannedRows, keys: Sequence[str], keeps_all: bool) -> JoinSide:
        time = rows.event_time
        return JoinSide(
            rows.schema,
            tuple(rows.schema.get_field_index(key) for key in keys),
            None if time is None else (time.column, time.offset),
            times.on_null_time(rows.graph, rows.inputs) == "late",
            keeps_all,
        )

    def _event_time(self, time_of: int | None, columns: JoinedColumns) -> EventTime | None:
        if time_of is None:
            return None
        rows = (self.left, self.right)[time_of]
        assert rows.event_time is not None
        index = rows.schema.get_field_index(rows.event_time.column)
        for field, source in zip(columns.schema, columns.sources, strict=True):
            if source[time_of] == index:
                return replace(rows.event_time, column=field.name)
        raise AssertionError("the result has the event-time column")

    def _duration(self, argument: str, value: object) -> int:
        try:
            return microseconds(value)
        except ConfigError as error:
            raise PlanError(f"{self.call}: {argument}: {error.message}") from None
