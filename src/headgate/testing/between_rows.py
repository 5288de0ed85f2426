"""Elements that a test puts between the rows that it gives to a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import ConfigError
from headgate.testing.moments import Moment


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """A watermark between rows: the source declares that event time has reached `time`.

    Windows whose end is at or before `time` fire. Rows that come after the watermark with an earlier event time are
    late. `time` is a datetime (UTC, if it has no zone) or microseconds since 1970-01-01T00:00Z. `testing.at("15 min")`
    is a short form of a datetime. A watermark that is not later than the last one changes nothing.

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
    """A step of the processing-time clock between rows: the clock moves to `time`. It starts at 1970-01-01T00:00Z.

    Timers that are due at `time` or before are called. State that is older than its `ttl` expires. `time` has the forms
    that `AdvanceWatermark` accepts.

    >>> def numbers(env):
    ...     return env.from_source(hg.sources.csv("in/", schema=pa.schema({"n": pa.int64()})))
    >>> clock = hg.testing.AdvanceClock(hg.testing.at("1 h"))
    >>> hg.testing.run(numbers, [{"n": 1}, clock, {"n": 2}]).rows
    [{'n': 1}, {'n': 2}]
    """

    time: Moment


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart before row `row`, counted from 0 over all sources.

    The pipeline stops with a checkpoint. It resumes from the checkpoint with `parallelism` subtasks. None keeps the
    number of subtasks. Raises ConfigError if `row` is not a whole number of at least 0.

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
