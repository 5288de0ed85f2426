"""The user's handle of a job, and its result."""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.config import Config
from headgate.errors import CheckpointError, HeadgateError
from headgate.observe.channel_trace import ChannelTrace
from headgate.observe.finding import Finding
from headgate.observe.profile import Profile
from headgate.other_names import OtherNames
from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import StreamGraph
from headgate.plan.job_graph import build_job_graph
from headgate.plan.used_columns import with_used_columns
from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
from headgate.runtime.checkpointing.guarantee import Guarantee
from headgate.runtime.deployment import Deployment
from headgate.runtime.master.job_state import JobState
from headgate.runtime.master.jobmaster import JobMaster
from headgate.runtime.running_operator import current_operator

_T = TypeVar("_T")
#: Seconds that a program waits at its exit until its jobs have ended.
_EXIT_TIMEOUT = 10.0
#: Seconds that TaskManagers have for their answer, after the end of a profile or a trace.
_ANSWER = 10.0
#: Seconds of one step of a wait for a job: between two steps, an interrupt is noticed.
_WAIT_SLICE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(OtherNames):
    """The result of a finished job.

    `rows_in` counts the rows that sources have read, and `rows_out` the rows that sinks have taken. A row that goes to
    two sinks counts twice in `rows_out`. Each row that a running aggregate emits counts. Rows of a side output count if
    they go to a sink. `late_rows` counts the late rows that windows and joins dropped. `duration_s` is the time from
    the start of the tasks to the commit of the sinks, including all `restarts`.
    """

    name: str
    rows_in: int
    rows_out: int
    late_rows: int
    duration_s: float
    restarts: int
    metrics: dict[str, Any] = field(repr=False)


class JobHandle(OtherNames):
    """A running job. Any thread may call all methods."""

    def __init__(self, name: str, master: JobMaster) -> None:
        self._name = name
        self._master = master

    def status(self) -> str:
        """Return the job's state: CREATED, RUNNING, RESTARTING, FINISHED, FAILED or CANCELLED."""
        return self._master.state.value

    def wait(self, timeout: float | None = None) -> JobResult:
        """Wait until the job has finished and nothing of it runs any more. Returns the job's result.

        Raises the job's error, JobCancelled, or TimeoutError after `timeout` seconds.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        # The wait has steps, because an interrupt that comes just before a wait begins does not end the wait.
        while not self._master.ended.wait(max(0.0, min(_WAIT_SLICE, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"job {self._name!r} is {self.status()} after {timeout} s")
        if self._master.error is not None:
            raise self._master.error.with_traceback(None)  # drop the tracebacks of earlier calls
        return self._result()

    def cancel(self) -> None:
        """Cancel the job, and return when all its tasks have ended.

        A second call does nothing, and a call after the job's end does nothing. Within a function of a job, the method
        returns at once: the function cannot wait for the end of its own job.
        """
        self._master.cancel()
        if current_operator() is None:
            self._master.ended.wait()

    def savepoint(self, uri: str | os.PathLike[str], timeout: float | None = None) -> str:
        """Take a savepoint: a checkpoint that Headgate never deletes, in a new folder below `uri`, a path or URI.

        Returns the savepoint's URI, once the savepoint is complete and sinks have committed what they wrote before it.
        `execute(resume=)` takes this URI.

        The job continues, and need not take checkpoints of its own. If a checkpoint is under way, the savepoint starts
        when that checkpoint is over. If the job is starting or restarting, the savepoint starts when the job runs.

        Raises CheckpointError if the savepoint fails: it cannot be written, or the job fails or ends before it is
        complete. Also raises it within a function of a job. A failed savepoint does not harm the job. Raises
        TimeoutError after `timeout` seconds; the savepoint may still become complete.
        """
        if current_operator() is not None:
            raise CheckpointError("a function of a job cannot wait for a savepoint; take it in the program")
        late = f"the savepoint of job {self._name!r} is not complete after {timeout} s"
        return _answer(self._master.savepoint(uri), timeout, late)

    def stop(
        self,
        *,
        drain: bool = False,
        savepoint: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> str | None:
        """Stop the job without a failure, and return when it is FINISHED.

        Returns the path or URI of the job's last checkpoint, or None for a job without checkpoints. The last checkpoint
        is a savepoint below `savepoint`, if this is given, and otherwise one of the job's own checkpoints.

        Sources stop reading. With `drain` the input ends at this position: operators process all rows that were read,
        event time ends, all windows fire, and sinks commit everything. Without `drain` no window fires: the last
        checkpoint contains the operators' state, and sinks commit what came before it. `execute(resume=)` then
        continues as if the job had not been stopped.

        A second call waits for the same end. After the end, the method returns at once. Within a function of a job, it
        returns None at once. If the job fails before it has stopped, it restarts, if its restart strategy allows this,
        and then stops.

        Raises the job's error if the job fails or is cancelled. Raises CheckpointError if the checkpoint fails: without
        `drain` the job then continues, with `drain` it ends. Raises ConfigError if the job is already being stopped in
        another way. Raises TimeoutError after `timeout` seconds; the job still ends later.
        """
        answer = self._master.stop(drain, savepoint)
        if current_operator() is not None:
            return None
        return _answer(answer, timeout, f"job {self._name!r} has not ended {timeout} s after it was asked to stop")

    def metrics(self) -> dict[str, Any]:
        """Return the last reported counters of the job; see `docs/reference/metrics.md`.

        TaskManagers report two to four times a second while the job runs, those with many tasks less often.
        """
        return self._master.metrics()

    def diagnose(self) -> list[Finding]:
        """Return the places that limit the job's throughput now, the worst first. The list is empty if there are none.

        Each finding says where the limit is, why, and what to do. Its `sentence` says this in one line, and `as_json()`
        returns its evidence. Findings describe the last seconds, so the list is empty in a job's first three seconds.

        `severity` is LIMIT if the job keeps up with its sources, or if its sources have no schedule: one place is
        always the slowest. It is BEHIND if the lag of a source grows, and STUCK if no row has moved for ten seconds.
        The driver logs a line about a job that is BEHIND or STUCK.

        If the cause is a function, the driver profiles the function for two seconds, at most once a minute. The
        finding then has the `hottest` lines of this profile.

        If the cause is data skew behind `key_by`, the slow subtask samples its rows for two seconds, at most once a
        minute. The finding then has its `hot_keys`: those with 30 % of the subtask's rows, or with 10 % and three times
        the rows of an average key. `sentence_with_keys` names them. Keys are data: `sentence`, `as_json()`, the job's
        page, logs and recordings do not contain them.
        """
        return self._master.monitor.diagnose()

    def backpressure(self) -> list[dict[str, Any]]:
        """Return the back-pressure of each vertex and subtask in the last three seconds.

        `level` is OK (up to 0.10 of the time), LOW (up to 0.50) or HIGH. `ratio`, `idle_ratio` and `busy_ratio` are
        shares of the time in which a task waits for room in its output, waits for input, and works. A vertex has the
        values of its worst subtask. The list is empty in a job's first three seconds.
        """
        return self._master.monitor.backpressure()

    def profile(self, operator: str, subtask: int | None = None, seconds: float = 3.0) -> Profile:
        """Sample one subtask of an operator for `seconds` seconds, and return the lines where it spends its time.

        `operator` is a name as in `metrics()["operators"]`. Without `subtask` the method profiles the subtask that
        worked most in the last seconds. A profile takes at most 60 seconds. Its `hottest` are the five lines with most
        samples, see docs/how-to/find-the-slow-line.md.

        The subtask continues to run. Its TaskManager samples the subtask's thread up to 100 times a second, and less
        often if that would take more than 0.7 % of a processor. The profile contains files, functions and line numbers,
        and no values. If the job is starting or restarting, the profile begins when the job runs.

        Raises ProfileError if there is no such operator or subtask, if the subtask or the job has ended, or if the job
        fails before the profile is complete. Raises TimeoutError if the profile is not complete ten seconds after its
        end: the job does not run, or a function holds Python's interpreter lock all the time.
        """
        master = self._master
        if subtask is None:
            vertex, shape = master.profiles.operator(operator)
            subtask = master.monitor.busiest_subtask(vertex.id, shape.id)
        answer = master.profiles.ask(operator, subtask, seconds)
        timeout = seconds + _ANSWER
        try:
            return _answer(answer, timeout, f"{operator}[{subtask}] has no profile after {timeout:g} s")
        except TimeoutError as error:
            answer.cancel()
            raise TimeoutError(f"{error}; the job is {self.status()}") from None

    def trace_channel(
        self, exchange: str, producer: int | None = None, consumer: int | None = None, seconds: float = 2.0
    ) -> ChannelTrace:
        """Record for `seconds` s (at most 10) what passes one channel: data and AddCredit, with their times.

        `exchange` is a name as in `metrics()["edges"]`, `operator -> operator`. `producer` and `consumer` are subtasks.
        Without one or both of them, the method traces the matching channel that has waited most in the last seconds.

        The trace has up to 5,000 events of each end. At the producer, these are data that it sends, with its backlog,
        and AddCredit that it receives. At the consumer, they are buffers that its task reads. `print` shows them line
        by line, see docs/how-to/watch-a-job.md. A channel that is not traced costs nothing. A channel within one
        TaskManager needs no credit: its trace has only the reads.

        Raises TraceError if there is no such channel, if its tasks or the job have ended, or if the job fails
        meanwhile. Raises TimeoutError ten seconds after the trace should be complete.
        """
        master = self._master
        if producer is None or consumer is None:
            producer, consumer = master.monitor.worst_channel(exchange, producer, consumer)
        answer = master.traces.ask(exchange, producer, consumer, seconds)
        timeout = seconds + _ANSWER
        late = f"{exchange!r}, {producer} to {consumer}, has no trace after {timeout:g} s; the job is {self.status()}"
        return _answer(answer, timeout, late)

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        """Write what was measured in the last ten minutes to a file, for `headgate doctor`.

        The file has the job's counters of each second, the names of its operators, its options and the versions of the
        packages. It has no rows, no keys and no names of files. Raises RecordingError.
        """
        self._master.monitor.save_recording(path)

    def save_page(self, path: str | os.PathLike[str]) -> None:
        """Write the job's page to one HTML file, of at most 5 MB, that any browser shows without the job.

        The file works without a network, for example as an attachment of a ticket. It shows what the page shows now:
        the verdict, the graph, the last profile, time series of the 50 subtasks to look at first, channels and
        checkpoints. It has no rows and no keys. If the job has failed, the file has the job's error. Raises
        RecordingError if the file cannot be written.
        """
        from headgate.web.saved_page import save_page  # the page's types are loaded only when they are used

        save_page(self._master.watched, path)

    @property
    def web_url(self) -> str | None:
        """The address of the job's page; see `docs/how-to/watch-a-job.md`.

        The address is None with `web_port=None`, or if another program uses the port. The page can be opened one second
        after the job's tasks have started. The same address also serves the job as JSON. The page stays until the
        program ends or ten later jobs have ended, or fewer if these use more than 96 MiB of memory.
        """
        return self._master.web_url

    @property
    def restarts(self) -> int:
        """The number of restarts of the job so far."""
        return self._master.restarts

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for rows after a failure. The job's checkpoints, sources and sinks decide it.

        "exactly-once": each row affects state once, and appears once at the sinks.

        "at-least-once": no row is lost, but some rows may count or appear twice. The reason is `checkpoint_mode`, or a
        sink that cannot take back rows: `for_each_batch`, `foreach_dataframe`, `printer`, or a sink of your own. The
        reference of these sinks says how a function can still count rows once.

        "none": a source cannot resume from its position, so rows may be lost. Or the job has no checkpoints, and a
        failure ends it.
        """
        return self._master.guarantee

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return the last ten checkpoints and savepoints of all attempts, in the order in which they ended."""
        return self._master.checkpoints()

    def _result(self) -> JobResult:
        """Return the result, from the current counters."""
        metrics = self.metrics()
        return JobResult(
            name=self._name,
            rows_in=metrics["rows_in"],
            rows_out=metrics["rows_out"],
            late_rows=metrics["late_rows"],
            duration_s=self._master.duration_s,
            restarts=self._master.restarts,
            metrics=metrics,
        )

    def __repr__(self) -> str:
        return f"JobHandle({self._name!r}, {self.status()})"


def report(job: JobHandle) -> dict[str, Any]:
    """Return a report on a job's present state, as JSON values.

    The report has the job's `state`, the `error` that ended the job, and the fields of `JobResult` without `metrics`.
    """
    result, error = job._result(), job._master.error
    description = None if error is None else f"{type(error).__name__}: {error}"
    counters = {name: getattr(result, name) for name in ("rows_in", "rows_out", "late_rows", "duration_s", "restarts")}
    return {"name": result.name, "state": job.status(), "error": description, **counters}


def has_ended(job: JobHandle) -> bool:
    """Return whether nothing of a job runs any more."""
    return job._master.ended.is_set()


def _answer(answer: Future[_T], timeout: float | None, late: str) -> _T:
    try:
        return answer.result(timeout)
    except TimeoutError:
        raise TimeoutError(late) from None
    except HeadgateError as error:
        raise error.with_traceback(None) from error.__cause__  # drop the tracebacks of earlier calls


#: Functions that are called with each job that starts, for a program that runs another program's script.
listeners: list[Callable[[JobHandle], None]] = []


def submit(
    graph: StreamGraph,
    name: str,
    *,
    config: Config,
    deployment: Deployment,
    resume: str | None = None,
    allow_duplicates: bool = False,
) -> JobHandle:
    """Check the job, prepare its sources and sinks, and start it.

    `resume` is the checkpoint to resume from: its path or URI, "latest" or "latest-if-any"; None for a fresh start.
    Errors are raised before anything runs. A checkpoint that is older than what sinks have published is an error,
    unless `allow_duplicates`.
    """
    job_graph = with_used_columns(build_job_graph(graph))
    count = deployment.taskmanagers(job_graph.parallelism, config)
    plan = ExecutionPlan(job_graph, count)
    run = f"{os.getpid():x}-{os.urandom(4).hex()}"
    master = JobMaster(
        name, run, plan=plan, config=config, deployment=deployment, resume=resume, allow_duplicates=allow_duplicates
    )
    try:
        master.start()
    except HeadgateError as error:
        raise error.at(job=name) from None
    _unfinished.add(master)
    handle = JobHandle(name, master)
    for listener in listeners:
        listener(handle)
    return handle


#: Jobs that may still run when the program ends.
_unfinished: weakref.WeakSet[JobMaster] = weakref.WeakSet()


@atexit.register
def _cancel_unfinished() -> None:
    """Cancel the jobs of a program that ends, so that their sinks remove hidden files."""
    masters = [master for master in _unfinished if not master.ended.is_set()]
    for master in masters:
        master.cancel()
    for master in masters:
        master.ended.wait(_EXIT_TIMEOUT)


__all__ = ["JobHandle", "JobResult", "JobState", "submit"]
