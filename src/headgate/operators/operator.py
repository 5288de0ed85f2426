"""`Operator`: the base class of all operators. An instance belongs to one subtask, whose task thread calls it with
batches.

An operator runs on one thread only. It does no I/O and starts no thread, except for lookups. It emits its results to
`self.output`. This output is the next operator of the chain (a direct call), or a RecordWriter. The operator does not
know which of the two it is.
"""

from __future__ import annotations

import os
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Never, Protocol, Self

import pyarrow as pa

from headgate.errors import HeadgateError, JobCancelled, PlanError, UserFunctionError
from headgate.operators.emission_log import EmissionLog
from headgate.records.elements import MAX_TIME, MIN_TIME
from headgate.state.snapshot import Snapshot

__all__ = [
    "MAX_TIME",
    "MIN_TIME",
    "Operator",
    "OperatorContext",
    "OperatorFactory",
    "Output",
    "TwoInputOperator",
    "UserCode",
    "call_user",
    "check_function",
    "function_name",
]


class Output(Protocol):
    """The receiver of an operator's results."""

    def emit(self, batch: pa.RecordBatch) -> None:
        """Send a batch."""

    def emit_watermark(self, time: int) -> None:
        """Announce that no row before `time` (microseconds since the epoch) follows, except late rows."""

    def emit_status(self, active: bool) -> None:
        """Announce whether the stream is active. An idle stream does not hold back the watermarks of the operators that
        read it."""


def _no_task() -> None:
    """Do nothing: no task drives the operator."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The place where an operator runs: its job, name and subtask."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    #: How many key groups the operator has. The group of a key is `key_groups(key_hash(columns), max_parallelism)`.
    max_parallelism: int = 128
    _: KW_ONLY
    #: Lets the task flush its output and run its mail, in the middle of a batch. An operator that waits for something
    #: outside calls it at least ten times per second. It raises JobCancelled if the job was cancelled.
    let_task_work: Callable[[], None] = _no_task


class Operator:
    """The base class of all operators. It forwards watermarks and status changes. A subclass overrides at least
    `process`.

    The counters are plain integers. Other threads read them.
    """

    output: Output
    #: The side outputs that the job reads, by tag. Rows for any other tag are dropped.
    sides: Mapping[str, Output] = MappingProxyType({})
    context: OperatorContext
    #: The log of how many rows the operator had emitted at which time, or None for an operator that keeps no log.
    emissions: EmissionLog | None = None

    def __init__(self) -> None:
        self.rows_in = 0
        self.rows_out = 0
        self.late_rows = 0
        #: Seconds in which the operator waited for a user's lookup function.
        self.lookup_wait_s = 0.0

    def open(self, context: OperatorContext) -> None:
        """Prepare for the first batch. The task thread calls this once, after it has set `output`."""
        self.context = context

    def process(self, batch: pa.RecordBatch) -> None:
        """Process one batch, which has at least one row."""
        self.emit(batch)

    def process_watermark(self, time: int) -> None:
        """Process a watermark: event time has reached `time`. The default sends the watermark to the output."""
        self.output.emit_watermark(time)

    def process_status(self, active: bool) -> None:
        """Process a change of the input's status, active or idle. The default sends the status to the output."""
        self.output.emit_status(active)

    def end_input(self) -> None:
        """Emit the last results, because the bounded input has ended. The task has already sent the watermark
        MAX_TIME."""

    def next_time(self) -> int | None:
        """Return the time, in microseconds of the clock, at which `on_processing_time` has work to do. None means
        never."""
        return None

    def on_processing_time(self) -> None:
        """Do the work that is due by the clock. The task calls this method between two batches, at `next_time` or soon
        after."""

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the state, or None for an operator without state. The task calls this method between two
        batches."""
        return None

    def restore_ended(self, groups: Sequence[range]) -> None:
        """Record that the subtasks that held these key groups had already ended at the checkpoint.

        These subtasks had emitted their results, and left no snapshot. The task calls this method before `restore`. If
        all subtasks had ended, the task does not call `restore`.
        """

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Resume from the snapshots that the subtasks took at the checkpoint.

        The tables of the snapshots hold only rows of this subtask's key groups. The task calls this method after `open`
        and before the first batch. Raises CheckpointError for another operator's state.
        """

    def close(self) -> None:
        """Free what `open` allocated. The task calls this method after a failure or a cancel too, even if it never
        called `open`."""

    def state_keys(self) -> int:
        """Return the number of keys in the state."""
        return 0

    def state_bytes(self) -> int:
        """Return the size of the keyed state in bytes."""
        return 0

    def emit(self, batch: pa.RecordBatch) -> None:
        """Count a batch and send it to the output. An empty batch is dropped, so receivers never see one."""
        if batch.num_rows:
            self.rows_out += batch.num_rows
            self.output.emit(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        """Send a batch to a side output. If the job does not read this side output, drop the batch."""
        if tag in self.sides and batch.num_rows:
            self.sides[tag].emit(batch)


class TwoInputOperator(Operator):
    """The base class of operators with two inputs: `process` gets the batches of the first one.

    Watermarks, statuses and the end of input are those of both inputs together: a watermark is the lowest of all
    channels.
    """

    @abstractmethod
    def process_second(self, batch: pa.RecordBatch) -> None:
        """Process one batch of the second input, which has at least one row."""


#: A function that makes the operator of one subtask, such as a `functools.partial` of a class. The function is
#: picklable, because the driver sends it to the task.
OperatorFactory = Callable[[], Operator]


def check_function(call: str, function: object) -> None:
    """Raise PlanError if `function` is not callable, or is a UDF of Spark. The error names the user's call."""
    if not callable(function):
        raise PlanError(f"{call}: the first argument must be a function, not {function!r}")
    if hasattr(function, "evalType") and hasattr(function, "func"):  # Spark wraps a UDF in a plain function
        raise PlanError(f"{call}: this is a Spark UDF; give the plain Python function (udf.func)")


def call_user(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function. If it raises, raise a UserFunctionError that holds the traceback as text."""
    with UserCode(function):
        return function(*arguments)


def call_user_for_each(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Call a user's function for each item, and return the results. Raises UserFunctionError as `call_user` does."""
    results: list[Any] = []
    with UserCode(function) as code:
        for item in items:
            results.append(function(item))
            code.end_child()
    return results


#: How many forks of Python led to this process. Asking for the process id would be a system call for each row.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class UserCode:
    """A context manager around a user's function. It turns an exception into a UserFunctionError, except
    KeyboardInterrupt and Headgate's own errors."""

    __slots__ = ("_forks", "_function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __enter__(self) -> Self:
        self._forks = _forks
        return self

    def end_child(self) -> None:
        """End this process if the function has forked and this is the child. Call it after each of several calls."""
        if _forks != self._forks:
            _end_child(self._function)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.end_child()
        # A BaseException also becomes a UserFunctionError: a sys.exit() in the function, or asyncio's CancelledError.
        # Two kinds stay as they are: a KeyboardInterrupt, and a HeadgateError. A JobCancelled that the function raises
        # belongs to another job, so it becomes a UserFunctionError too.
        is_ours = isinstance(error, HeadgateError) and not isinstance(error, JobCancelled)
        if error is not None and not is_ours and not isinstance(error, KeyboardInterrupt):
            text = "".join(traceback.format_exception(type(error), error, _user_traceback(error))).rstrip()
            what = f"{function_name(self._function)} raised {type(error).__name__}: {_message(error)}"
            raise UserFunctionError(f"{what}\n{text}") from None


def _end_child(function: Callable[..., Any]) -> Never:
    """End this process, which is the child of a fork in a user's function. Otherwise the child would continue as a
    second task with the same connections."""
    text = f"headgate: {function_name(function)} forked this process, and the child returned from it; it ends here\n"
    os.write(2, text.encode(errors="replace"))
    os._exit(1)


def _message(error: BaseException) -> str:
    """Return the message of a user's exception. The exception's `__str__` is user code too, and may fail."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its message cannot be shown: {type(failure).__name__})"


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a user's function, as errors show it."""
    return str(getattr(function, "__qualname__", None) or repr(function))


_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def _user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback without Headgate's own frames at its beginning, which do not help the user."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace
