"""What a test can put between the rows that it gives to a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import ConfigError
from headgate.testing.moments import Moment


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """Between rows: the source says that event time has come to `time`. Rows that are earlier and come after it are
    late, and windows that end by then fire.

    `time` is a datetime (UTC, if it has no zone) or microseconds since 1970-01-01T00:00Z; `testing.at("15 min")` makes
    short ones. A watermark that is not beyond the last one changes nothing.

    >>> def seconds(env):
    ...     READ = pa.schema({"at": pa.timestamp("s", "UTC")})
    ...     read = env.from_source(hg.sources.csv("in/", schema=READ), watermark=hg.Watermark("at"))
    ...     return read.key_by().window(hg.tumble("1 s")).aggregate(rows=hg.count())
    >>> at = hg.testing.at
    >>> result = hg.testing.run(seconds, [{"at": at(0)}, hg.testing.AdvanceWatermark(at("5 s")), {"at": at(0)}])
    >>> len(result.rows), result.late_rows
    (1, 1)
    """

    time: Moment


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Between rows: the processing-time clock, which stands at 1970-01-01T00:00Z in the beginning, comes to `time`.
    Timers that are due by then are called, and state that is older than its `ttl` is forgotten. Times are written as
    for `AdvanceWatermark`."""

    time: Moment


@dataclass(frozen=True, slots=True)
class Restart:
    """The pipeline is stopped before row `row` (counted from 0, over all sources) with a checkpoint, and resumes from
    it with `parallelism` subtasks; None for as many as before.

    >>> def total(env):
    ...     numbers = env.from_source(hg.sources.csv("in/", schema=pa.schema({"n": pa.int64()})))
    ...     return numbers.key_by().aggregate(final=True, total=hg.sum("n"))
    >>> hg.testing.run(total, [{"n": 1}, {"n": 2}], restarts=[hg.testing.Restart(row=1, parallelism=2)]).rows
    [{'total': 3}]
    """

    row: int
    parallelism: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.row, bool) or not isinstance(self.row, int) or self.row < 0:
            raise ConfigError(f"Restart: row={self.row!r} must be the number of a row, counted from 0")
