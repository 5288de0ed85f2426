"""The kinds of windows that users declare: `hg.tumble`, `hg.hop`, `hg.session` and `hg.count_window`; and the schema of
the results of windows that go by time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import gcd
from typing import Final, Literal

import pyarrow as pa

from headgate.errors import ConfigError, PlanError
from headgate.operators.aggregates.aggregates import Aggregate, aggregate_fields, key_fields, unique_names
from headgate.operators.event_times import check_time_column, unit_of
from headgate.quantities import duration_text, microseconds

Duration = float | str | timedelta
#: The time that windows go by: the event time of rows, or the clock when rows come.
Time = Literal["event", "processing"]
#: The type of the bounds of windows by the clock.
CLOCK_TIME: Final = pa.timestamp("us", "UTC")
#: The most rows of a window by count, and the most panes that make up such a window.
_MOST_COUNTED: Final = 1 << 40
_MOST_PANES: Final = 10_000
#: Panes are faster only if each row is in at least this many windows.
_LEAST_PANES = 4


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `size` microseconds. A new window begins every `every` microseconds, counted from 1970-01-01T00:00Z.
    With `by_clock`, the time of a row is that of the clock when the row arrives."""

    size: int
    every: int
    by_clock: bool = False

    def __str__(self) -> str:
        size, every, time = duration_text(self.size), duration_text(self.every), _shown_time(self.by_clock)
        return f"tumble({size}{time})" if size == every else f"hop({size}, every={every}{time})"

    @property
    def per_row(self) -> int:
        """The largest number of windows that one row can be in."""
        return -(-self.size // self.every)

    @property
    def has_panes(self) -> bool:
        """Whether the operator uses panes: each row is in at least 4 windows, and `size` is a multiple of `every`."""
        return self.per_row >= _LEAST_PANES and self.size % self.every == 0

    @property
    def durations(self) -> dict[str, int]:
        """The names and values, in microseconds, that the event-time column's unit must divide."""
        return {"size": self.size, "every": self.every}

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns that, with the key, tell which earlier result of a window a new result replaces."""
        return ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of one key each. Rows that are less than `gap` microseconds apart are in the same session."""

    gap: int
    by_clock: bool = False

    def __str__(self) -> str:
        return f"session({duration_text(self.gap)}{_shown_time(self.by_clock)})"

    @property
    def durations(self) -> dict[str, int]:
        """The name and value, in microseconds, that the event-time column's unit must divide."""
        return {"gap": self.gap}

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns that, with the key, tell which earlier results a new result replaces. A session that has grown
        replaces sessions with other bounds."""
        return ("session",)


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Windows of `size` successive rows of one key. A window ends after every `every` rows. With `partial`, windows
    that are incomplete when the input ends are emitted, too."""

    size: int
    every: int
    partial: bool = False

    def __str__(self) -> str:
        every = "" if self.size == self.every else f", every={self.every}"
        return f"count_window({self.size}{every}{', partial=True' if self.partial else ''})"


#: The kinds of windows that go by time. `operator_of` in `api/rows_by_key.py` has the operators of each kind.
TimeWindows = Windows | Sessions
#: All kinds of windows.
AnyWindows = TimeWindows | CountWindows


def tumble(size: Duration, *, time: Time = "event") -> Windows:
    """Declare windows that follow one another without gaps: one begins at every multiple of `size` since
    1970-01-01T00:00Z. Raises PlanError if `size` is not above 0.

    With `time="processing"`, a row belongs to the window that is open when the row arrives, and a window fires when the
    clock reaches its end. Such windows need no event time, no row is late, and each run may give other results. When a
    bounded input ends, the last windows fire at once.

    ```python
    stream.key_by("shop").window(hg.tumble("1 h")).aggregate(rows=hg.count())
    ```
    """
    return hop(size, every=size, time=time)


def hop(size: Duration, every: Duration, *, time: Time = "event") -> Windows:
    """Declare overlapping windows. Each window is `size` long, and one begins at every multiple of `every` since
    1970-01-01T00:00Z.

    For `time="processing"`, see `tumble`. Raises PlanError if `every` is not above 0, or if `every` is longer than
    `size`.

    ```python
    stream.key_by("shop").window(hg.hop("1 h", every="5 min")).aggregate(rows=hg.count())
    ```
    """
    windows = Windows(_duration(size), _duration(every), _by_clock(time))
    if windows.every <= 0:
        raise PlanError(f"window: {every!r} is too short: windows need at least one microsecond")
    if windows.size < windows.every:
        raise PlanError(f"window: size {size!r} must not be shorter than every={every!r}: rows would be in no window")
    return windows


def session(gap: Duration, *, time: Time = "event") -> Sessions:
    """Declare sessions: a session of a key ends when no row of this key follows for `gap`.

    `window_start` is the event time of the session's first row. `window_end` is the event time of its last row plus
    `gap`. A row at `window_end` begins a new session. A row between two sessions may join them to one. With
    `time="processing"`, the time of a row is the moment when it arrives; see `tumble`. Raises PlanError if `gap` is not
    above 0.

    ```python
    stream.key_by("user").window(hg.session("30 min")).aggregate(clicks=hg.count())
    ```
    """
    sessions = Sessions(_duration(gap), _by_clock(time))
    if sessions.gap <= 0:
        raise PlanError(f"window: gap {gap!r} is too short: sessions need a gap of at least one microsecond")
    return sessions


def count_window(size: int, every: int | None = None, *, partial: bool = False) -> CountWindows:
    """Declare windows of `size` rows of each key, in the order in which the rows arrive. Time plays no part.

    A window fires when its last row arrives. The output has no `window_start` and no `window_end`: the key columns come
    first, then the aggregates. `first` and `last` choose by the order of arrival.

    With `every`, windows overlap: after each `every` rows of a key, a window of the last `size` rows fires. Until the
    key has `size` rows, its windows have fewer. This is Flink's `countWindow(size, slide)`.

    When a bounded input ends, incomplete windows give no result, as in Flink. With `partial=True`, each key also emits
    the result of its incomplete window, if it has had a row since its last result.

    Raises PlanError if `size` or `every` is not a whole number above 0, or if `every` is greater than `size`.

    ```python
    stream.key_by("shop").window(hg.count_window(100)).aggregate(total=hg.sum("price"))
    ```
    """
    every = size if every is None else every
    for name, value in (("size", size), ("every", every)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_COUNTED:
            raise PlanError(f"count_window: {name}={value!r} must be a whole number of rows, from 1 to {_MOST_COUNTED}")
    if every > size:
        raise PlanError(f"count_window: size={size} must not be less than every={every}: rows would be in no window")
    if (panes := size // gcd(size, every)) > _MOST_PANES:
        raise PlanError(
            f"count_window: size={size} and every={every} would cut each window into {panes} parts, and at most "
            f"{_MOST_PANES} are possible; choose a greater every that divides size"
        )
    if not isinstance(partial, bool):
        raise PlanError(f"count_window: partial={partial!r} must be True or False")
    return CountWindows(size, every, partial)


def _duration(value: Duration) -> int:
    try:
        return microseconds(value)
    except ConfigError as error:
        raise PlanError(f"window: {error.message}") from None


def _by_clock(time: str) -> bool:
    if time not in ("event", "processing"):
        raise PlanError(f"window: time={time!r} must be 'event' or 'processing'")
    return time == "processing"


def _shown_time(by_clock: bool) -> str:
    return ", time='processing'" if by_clock else ""


def check_windows(windows: object) -> None:
    """Raise PlanError if this is not a declaration of windows."""
    if not isinstance(windows, AnyWindows):
        raise PlanError(
            f"window: {windows!r} is not a window; use hg.tumble(size), hg.hop(size, every=...), hg.session(gap) or "
            "hg.count_window(size)"
        )


def check_may_be_late(call: str, windows: AnyWindows) -> None:
    """Raise PlanError for windows by the clock or by count: no row is late for them. `call` is the user's call about
    late rows."""
    if isinstance(windows, CountWindows):
        raise PlanError(f"{call}: no row is late for {windows}, because it does not go by time; leave {call} out")
    if windows.by_clock:
        raise PlanError(
            f"{call}: no row is late for {windows}, because a row is in the window of the moment when it comes; leave "
            f"{call} out, or leave out time='processing' to go by event time"
        )


def window_schema(
    keys: tuple[str, ...],
    time_column: str | None,
    windows: TimeWindows,
    aggregates: tuple[tuple[str, Aggregate], ...],
    input_schema: pa.Schema,
    *,
    time_offset: int = 0,
) -> pa.Schema:
    """Return the schema of the results: key columns, window_start, window_end, aggregates.

    A `time_column` of None means windows by the clock. An event time is a value of this column plus `time_offset`
    microseconds. Raises PlanError for an impossible aggregation, or if the time column's unit is too coarse for the
    windows.
    """
    kind = CLOCK_TIME if time_column is None else check_time_column(time_column, input_schema)
    for name, value in windows.durations.items():
        if value % unit_of(kind):
            raise PlanError(
                f"window: {name} is {value} us, and event-time column {time_column!r} of type {kind} cannot hold "
                f"such a window's bounds; cast it to timestamp('us')"
            )
    if isinstance(windows, Sessions) and time_offset % unit_of(kind):  # a session's bounds are event times
        raise PlanError(
            f"window: the event time of a row is {-time_offset} us before the end of an earlier window, and event-time "
            f"column {time_column!r} of type {kind} cannot hold the bounds of such sessions; cast it to "
            "timestamp('us') directly after the earlier window"
        )
    bounds = [pa.field(name, kind, nullable=False) for name in ("window_start", "window_end")]
    return unique_names([*key_fields(keys, input_schema), *bounds, *aggregate_fields(aggregates, input_schema)])
