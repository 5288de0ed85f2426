"""A harness with which a test drives a whole pipeline step by step."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from headgate.api.checks import check_parallelism
from headgate.errors import CheckpointError, ConfigError, PlanError
from headgate.operators.side_output import SideOutput
from headgate.quantities import seconds
from headgate.runtime.master.job import JobHandle
from headgate.testing.deadline import overdue
from headgate.testing.given_rows import Rows, as_batch
from headgate.testing.given_source import GivenSource, Item
from headgate.testing.moments import Moment, in_microseconds, shown_moment
from headgate.testing.pipeline_under_test import Pipeline, PipelineUnderTest
from headgate.testing.set_clock import SetClock

#: Seconds between two checks whether the job has failed while a step waits for it.
_POLL_INTERVAL = 0.05


class PipelineHarness:
    """A pipeline under test. The test drives the pipeline step by step, and looks at its output after each step.

    The pipeline runs as a job in threads of this process. Your rows replace its sources, and the harness collects the
    rows for its sinks. `pipeline` is a function that takes a `StreamEnvironment` and builds streams. It ends them with
    sinks, or returns a stream, or returns several streams as a dict by name. Use the harness in a `with` block, which
    ends the job.

    Each step ends when all tasks have processed its rows. Event time and the clock move only by `advance_watermark`
    and `advance_clock`. A step that takes longer than `timeout` (seconds, or a string with a unit) raises TimeoutError,
    which shows where your functions are.

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
        if self._timeout <= 0:
            raise ConfigError(f"PipelineHarness: timeout={timeout!r} must be more than 0 s: each step takes some time")
        self._clock = SetClock()
        self._pipeline_under_test = PipelineUnderTest(pipeline, self._parallelism, self._clock)
        self._rows_by_output: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._pipeline_under_test.names}
        self._job: JobHandle | None = None
        self._was_entered = False
        self._folder: tempfile.TemporaryDirectory[str]  # of checkpoints
        self._other_threads: frozenset[threading.Thread]  # of jobs that started before this one
        self._late_rows = 0
        self._pushed = 0
        self._deadline = 0.0

    def __enter__(self) -> Self:
        if self._was_entered:
            raise ConfigError("a PipelineHarness runs its pipeline in one with block: make a new harness")
        self._was_entered = True
        self._other_threads = frozenset(threading.enumerate())
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-test-")
        try:
            self._job = self._pipeline_under_test.start(None)
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
        """Let a source read a batch of rows: a dict, a list of dicts, a RecordBatch or a frame.

        `source` is the name or uid of the source; leave it out if there is only one source. `hg.SideOutput(tag, rows)`
        is read into a side output of the source. With a parallelism above 1, the subtasks of the source take turns.
        """
        given = self._pipeline_under_test.source(source)
        item = _as_item(rows, given)
        job = self._begin_step()
        given.give(self._pushed % given.subtasks, item)
        self._pushed += 1
        self._wait_until_processed(job, rows)

    def advance_watermark(self, time: Moment, *, source: str | None = None) -> None:
        """Move the event time of a source to `time`: a datetime, or microseconds since 1970-01-01T00:00Z.

        Raises ConfigError for a source without an `hg.Watermark`.
        """
        given = self._pipeline_under_test.source(source)
        if not given.has_event_time:
            raise ConfigError(
                "advance_watermark: the source has no event time; give it one: from_source(..., watermark=)"
            )
        moment = in_microseconds("advance_watermark", time)
        job = self._begin_step()
        for subtask in range(given.subtasks):
            given.give(subtask, moment)
        self._wait_until_processed(job, f"the watermark {shown_moment(moment)}")

    def advance_clock(self, time: Moment) -> None:
        """Move the processing-time clock to `time` and call the timers that are due.

        The clock starts at 1970-01-01T00:00Z. Raises ConfigError if `time` is earlier than the clock.
        """
        job = self._begin_step()
        self._clock.advance(time)
        self._wait_until_processed(job, f"the timers until {shown_moment(self._clock.now)}")

    def restart(self, parallelism: int | None = None) -> None:
        """Stop the pipeline with a checkpoint, and resume from it in a new job.

        `parallelism` is the parallelism of the new job. None keeps the parallelism. The harness calls the pipeline's
        function again to build the new job. Raises PlanError if the function then builds other outputs.
        """
        checked = check_parallelism("restart", self._parallelism if parallelism is None else parallelism, None)
        job = self._begin_step()
        resumed = PipelineUnderTest(self._pipeline, checked, self._clock)
        _check_same_outputs(self._pipeline_under_test.names, resumed.names)
        try:
            checkpoint = job.stop(savepoint=self._folder.name, timeout=self._remaining())
        except TimeoutError:
            raise self._overdue("the restart") from None
        self._end_job(job, "the restart")
        self._pipeline_under_test, self._parallelism = resumed, checked
        self._job = resumed.start(checkpoint)
        self._wait_until_processed(self._job, "the restart")

    def end(self) -> None:
        """End the input: the watermark passes all times, so windows fire and event-time timers are called.

        Processing-time timers are dropped. No step may follow.
        """
        job = self._begin_step()
        for source in self._pipeline_under_test.sources.values():
            source.end()
        self._end_job(job, "the end of its input")

    # Output

    def take(self, output: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of an output since its last `take`, as dicts.

        `output` is the name or uid of a sink, or the name under which the pipeline returned the stream. None means the
        returned stream or the only output. Raises PlanError if there is no such output.
        """
        rows: list[dict[str, Any]] = self.take_table(output).to_pylist()
        return rows

    def take_table(self, output: str | None = None) -> pa.Table:
        """Return the rows of an output since its last `take`, as a table. See `take`."""
        sink = self._pipeline_under_test.output(output)
        name = next(name for name in self._pipeline_under_test.names if self._pipeline_under_test.outputs[name] is sink)
        batches, self._rows_by_output[name] = self._rows_by_output[name], []
        return pa.Table.from_batches(batches, sink.schema)

    @property
    def outputs(self) -> Sequence[str]:
        """The names of all outputs, as `take` expects them."""
        return tuple(self._pipeline_under_test.names)

    @property
    def late_rows(self) -> int:
        """The number of late rows that windows and joins had dropped at the last `restart` or `end`."""
        return self._late_rows

    # Inside

    def _begin_step(self) -> JobHandle:
        if self._job is None:
            raise ConfigError(
                "the pipeline is not running: use the harness in a with block, and take no step after end()"
            )
        self._deadline = time.monotonic() + self._timeout
        return self._job

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _overdue(self, what: object) -> TimeoutError:
        return overdue(what, self._timeout, self._other_threads)

    def _wait_until_processed(self, job: JobHandle, what: object) -> None:
        """Wait until all tasks have processed the step: until a checkpoint is complete, whose barriers follow the
        rows."""
        for source in self._pipeline_under_test.sources.values():
            while not source.wait_until_read(min(_POLL_INTERVAL, self._remaining())):
                if not self._remaining():
                    raise self._overdue(what)
                if job.status() not in ("CREATED", "RUNNING"):
                    self._raise_if_failed(job)
        try:
            job.savepoint(self._folder.name, timeout=self._remaining())
        except TimeoutError:
            raise self._overdue(what) from None
        except CheckpointError as error:
            self._raise_if_failed(job)
            # The answer comes as soon as the attempt has failed. The job may not have noted its end yet.
            raise error.__cause__ or error from None
        self._collect()

    def _raise_if_failed(self, job: JobHandle) -> None:
        """Raise the job's error if it has failed."""
        if job.status() != "RUNNING":
            job.wait(self._remaining())

    def _end_job(self, job: JobHandle, what: str) -> None:
        try:
            self._late_rows = job.wait(self._remaining()).late_rows  # counts late rows before a restart too
        except TimeoutError:
            raise self._overdue(what) from None
        self._job = None
        self._collect()

    def _collect(self) -> None:
        for name in self._pipeline_under_test.names:
            self._rows_by_output[name] += self._pipeline_under_test.outputs[name].take()


def _check_same_outputs(before: Sequence[str], after: Sequence[str]) -> None:
    """Raise PlanError if the names differ: a restart must not lose the rows of an output."""
    if set(before) != set(after):
        was, now = (", ".join(map(repr, names)) for names in (before, after))
        raise PlanError(
            f"restart: the pipeline had the outputs {was}, and now it has {now}; its function must build the same "
            "outputs in each call"
        )


def _as_item(rows: Rows, source: GivenSource) -> Item:
    """Return the rows in the form that the source's reader reads. Raises ConfigError if they do not fit the source."""
    if not isinstance(rows, SideOutput):
        return as_batch(rows, source.schema)
    if rows.tag not in source.sides:
        raise ConfigError(
            f"push: the source has no side output {rows.tag!r}; it has: {', '.join(source.sides) or 'none'}"
        )
    return SideOutput(rows.tag, as_batch(rows.rows, source.sides[rows.tag]))
