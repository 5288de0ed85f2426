"""The kinds of windows that users declare: `hg.tumble`, `hg.hop` and `hg.session`; and the schema of their results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from headgate.errors import ConfigError, PlanError
from headgate.operators.aggregates.aggregates import Aggregate, aggregate_fields, key_fields, unique_names
from headgate.operators.event_times import check_time_column, unit_of
from headgate.quantities import duration_text, microseconds

Duration = float | str | timedelta
#: Panes are faster only if each row is in at least this many windows.
_LEAST_PANES = 4


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `size` microseconds. A new window begins every `every` microseconds, counted from
    1970-01-01T00:00Z."""

    size: int
    every: int

    def __str__(self) -> str:
        size, every = duration_text(self.size), duration_text(self.every)
        return f"tumble({size})" if size == every else f"hop({size}, every={every})"

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


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of one key each. Rows that are less than `gap` microseconds apart are in the same session."""

    gap: int

    def __str__(self) -> str:
        return f"session({duration_text(self.gap)})"

    @property
    def durations(self) -> dict[str, int]:
        """The name and value, in microseconds, that the event-time column's unit must divide."""
        return {"gap": self.gap}


def tumble(size: Duration) -> Windows:
    """Declare windows that follow one another without gaps. Raises PlanError if `size` is not above 0.

    ```python
    stream.key_by("shop").window(hg.tumble("1 h")).aggregate(rows=hg.count())
    ```
    """
    return hop(size, every=size)


def hop(size: Duration, every: Duration) -> Windows:
    """Declare overlapping windows. Each window is `size` long, and a window begins at every multiple of `every`.

    Raises PlanError if `every` is not above 0, or if `every` is longer than `size`.

    ```python
    stream.key_by("shop").window(hg.hop("1 h", every="5 min")).aggregate(rows=hg.count())
    ```
    """
    windows = Windows(_duration(size), _duration(every))
    if windows.every <= 0:
        raise PlanError(f"window: {every!r} is too short: windows need at least one microsecond")
    if windows.size < windows.every:
        raise PlanError(f"window: size {size!r} must not be shorter than every={every!r}: rows would be in no window")
    return windows


def session(gap: Duration) -> Sessions:
    """Declare sessions: a session of a key ends when no row of this key follows for `gap` of event time.

    `window_start` is the time of the session's first row. `window_end` is the time of its last row plus `gap`. A row at
    `window_end` begins a new session. A row between two sessions may join them to one. Raises PlanError if `gap` is not
    above 0.

    ```python
    stream.key_by("user").window(hg.session("30 min")).aggregate(clicks=hg.count())
    ```
    """
    sessions = Sessions(_duration(gap))
    if sessions.gap <= 0:
        raise PlanError(f"window: gap {gap!r} is too short: sessions need a gap of at least one microsecond")
    return sessions


def _duration(value: Duration) -> int:
    try:
        return microseconds(value)
    except ConfigError as error:
        raise PlanError(f"window: {error.message}") from None


def window_schema(
    keys: tuple[str, ...],
    time_column: str,
    windows: Windows | Sessions,
    aggregates: tuple[tuple[str, Aggregate], ...],
    input_schema: pa.Schema,
) -> pa.Schema:
    """Return the schema of the results: key columns, window_start, window_end, aggregates.

    Raises PlanError for an impossible aggregation, or if the time column's unit is too coarse for the windows.
    """
    kind = check_time_column(time_column, input_schema)
    for name, value in windows.durations.items():
        if value % unit_of(kind):
            raise PlanError(
                f"window: {name} is {value} us, and event-time column {time_column!r} of type {kind} cannot hold "
                f"such a window's bounds; cast it to timestamp('us')"
            )
    bounds = [pa.field(name, kind, nullable=False) for name in ("window_start", "window_end")]
    return unique_names([*key_fields(keys, input_schema), *bounds, *aggregate_fields(aggregates, input_schema)])
