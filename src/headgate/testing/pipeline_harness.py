"""A whole pipeline, driven by a test step by step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from headgate.api.checks import check_parallelism
from headgate.errors import CheckpointError, ConfigError
from headgate.operators.side_output import SideOutput
from headgate.quantities import seconds
from headgate.runtime.master.job import JobHandle
from headgate.testing.deadline import overdue
from headgate.testing.given_rows import Rows, as_batch
from headgate.testing.given_source import GivenSource, Item
from headgate.testing.moments import Moment, in_microseconds, shown_moment
from headgate.testing.pipeline_under_test import Pipeline, PipelineUnderTest
from headgate.testing.set_clock import SetClock

#: How long to wait for what a job has read before looking whether it has failed, seconds.
_LOOK = 0.05


class PipelineHarness:
    """Drive a pipeline step by step, and look at its output after each: a job in threads of this process, with your
    rows in place of its sources and its rows kept in place of its sinks.

    `pipeline` is a function that is given a `StreamEnvironment` and builds streams: it ends them with sinks, or returns
    a stream, or several as a dict by name. Use the harness in a `with` block, which leaves nothing running.

    Each step ends when all tasks have worked off what it gave. Event time and the clock are yours: they move only by
    `advance_watermark` and `advance_clock`. A step that takes longer than `timeout` (seconds, or a string with a unit)
    raises TimeoutError, which shows where functions of yours are.

    >>> def doubled(env):
    ...     numbers = env.from_source(hg.sources.csv("numbers/", schema=pa.schema({"n": pa.int64()})))
    ...     return numbers.select(n="2 * n")
    >>> with hg.testing.PipelineHarness(doubled) as harness:
    ...     harness.push({"n": 21})
    ...     print(harness.take())
    [{'n': 42}]
    """

    def __init__(self, pipeline: Pipeline, *, parallelism: int = 1, timeout: float | str = "60 s") -> None:
        self._pipeline = pipeline
        self._parallelism = check_parallelism("PipelineHarness", parallelism, None)
        self._timeout = seconds(timeout)
        self._clock = SetClock()
        self._made = PipelineUnderTest(pipeline, self._parallelism, self._clock)
        self._kept: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._made.names}
        self._job: JobHandle | None = None
        self._folder: tempfile.TemporaryDirectory[str]  # of checkpoints
        self._late_rows = 0
        self._pushed = 0
        self._deadline = 0.0

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-test-")
        try:
            self._job = self._made.start(None)
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        job, self._job = self._job, None
        try:
            if job is not None:
                job.cancel()
        finally:
            self._folder.cleanup()

    # Steps

    def push(self, rows: Rows, *, source: str | None = None) -> None:
        """Have a source read rows: a dict, a list of dicts, a RecordBatch or a frame; they are read as one batch.

        `source` is its name or uid, if there are several. `hg.SideOutput(tag, rows)` goes to a source's side output.
        With a parallelism above 1 its subtasks read in turn."""
        given = self._made.source(source)
        item = _item(rows, given)
        job = self._begin_step()
        given.give(self._pushed % given.subtasks, item)
        self._pushed += 1
        self._work_off(job, rows)

    def advance_watermark(self, time: Moment, *, source: str | None = None) -> None:
        """Have a source say that event time has come to `time`: a datetime, or microseconds since 1970-01-01T00:00Z.
        Raises ConfigError for a source that has no `hg.Watermark`."""
        given = self._made.source(source)
        if not given.has_event_time:
            raise ConfigError("advance_watermark: the source has no event time: give from_source a watermark=")
        moment = in_microseconds("advance_watermark", time)
        job = self._begin_step()
        for subtask in range(given.subtasks):
            given.give(subtask, moment)
        self._work_off(job, f"the watermark {shown_moment(moment)}")

    def advance_clock(self, time: Moment) -> None:
        """Set the processing-time clock, which begins at 1970-01-01T00:00Z. Raises ConfigError if it would go back."""
        job = self._begin_step()
        self._clock.advance(time)
        self._work_off(job, f"the timers until {shown_moment(self._clock.now)}")

    def restart(self, parallelism: int | None = None) -> None:
        """Stop the pipeline with a checkpoint, and have a new job resume from it, with another parallelism if one is
        given. The pipeline's function is called again to build it."""
        checked = check_parallelism("restart", self._parallelism if parallelism is None else parallelism, None)
        job = self._begin_step()
        made = PipelineUnderTest(self._pipeline, checked, self._clock)
        try:
            checkpoint = job.stop(savepoint=self._folder.name, timeout=self._left())
        except TimeoutError:
            raise overdue("the restart", self._timeout) from None
        self._end_job(job, "the restart")
        self._made, self._parallelism = made, checked
        self._job = made.start(checkpoint)
        self._work_off(self._job, "the restart")

    def end(self) -> None:
        """End the input: event time ends, so windows fire and event-time timers are called; timers of the clock are
        dropped. Nothing can be pushed from then on."""
        job = self._begin_step()
        for source in self._made.sources.values():
            source.end()
        self._end_job(job, "the end of its input")

    # What came of them

    def take(self, output: str | None = None) -> list[dict[str, Any]]:
        """The rows of an output since the last `take` of it, as dicts. `output` is the name or uid of a sink, or that
        under which the pipeline returned the stream; None: the stream that it returned, or its only output."""
        rows: list[dict[str, Any]] = self.take_table(output).to_pylist()
        return rows

    def take_table(self, output: str | None = None) -> pa.Table:
        """The same as a table."""
        sink = self._made.output(output)
        name = next(name for name in self._made.names if self._made.outputs[name] is sink)
        batches, self._kept[name] = self._kept[name], []
        return pa.Table.from_batches(batches, sink.schema)

    @property
    def outputs(self) -> Sequence[str]:
        """The names that `take` knows."""
        return tuple(self._made.names)

    @property
    def late_rows(self) -> int:
        """How many rows windows have dropped so far, as it was at the last `restart` or `end`."""
        return self._late_rows

    # Inside

    def _begin_step(self) -> JobHandle:
        if self._job is None:
            raise ConfigError(
                "the pipeline does not run: use the harness in a with block, and push nothing after its end"
            )
        self._deadline = time.monotonic() + self._timeout
        return self._job

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _work_off(self, job: JobHandle, what: object) -> None:
        """Wait until all tasks are through with it. A checkpoint tells: its barriers come behind the rows."""
        for source in self._made.sources.values():
            while not source.wait_until_read(min(_LOOK, self._left())):
                if not self._left():
                    raise overdue(what, self._timeout)
                if job.status() not in ("CREATED", "RUNNING"):
                    self._fail(job)
        try:
            job.savepoint(self._folder.name, timeout=self._left())
        except TimeoutError:
            raise overdue(what, self._timeout) from None
        except CheckpointError:
            self._fail(job)
            raise
        self._keep()

    def _fail(self, job: JobHandle) -> None:
        """Raise the job's error, if it fails."""
        if job.status() != "RUNNING":
            job.wait(self._left())

    def _end_job(self, job: JobHandle, what: str) -> None:
        try:
            self._late_rows = job.wait(self._left()).late_rows  # those before its checkpoint, too
        except TimeoutError:
            raise overdue(what, self._timeout) from None
        self._job = None
        self._keep()

    def _keep(self) -> None:
        for name in self._made.names:
            self._kept[name] += self._made.outputs[name].take()


def _item(rows: Rows, source: GivenSource) -> Item:
    """What the source's reader is to read."""
    if not isinstance(rows, SideOutput):
        return as_batch(rows, source.schema)
    if rows.tag not in source.sides:
        raise ConfigError(f"push: the source has no side output {rows.tag!r}")
    return SideOutput(rows.tag, as_batch(rows.rows, source.sides[rows.tag]))
