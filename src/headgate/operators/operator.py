"""`Operator`: the base of all operators. An instance belongs to one subtask; its task thread passes it batches.

An operator does no I/O, starts no thread, and runs on one thread only. It emits its results to `self.output`. This is
the next operator of the chain (a direct call), or a RecordWriter; the operator does not know which.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Never, Protocol

import pyarrow as pa

from headgate.errors import HeadgateError, JobCancelled, PlanError, UserFunctionError
from headgate.records.elements import MAX_TIME, MIN_TIME
from headgate.state.snapshot import Snapshot

__all__ = [
    "MAX_TIME",
    "MIN_TIME",
    "Operator",
    "OperatorContext",
    "OperatorFactory",
    "Output",
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
        """Announce that no row before `time` (microseconds since the epoch) follows, except late ones."""

    def emit_status(self, active: bool) -> None:
        """Announce whether the stream is active. An idle stream does not hold back its readers' watermarks."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The place where an operator runs: its job, name and subtask."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    #: How many key groups the operator has. A key's group is `key_groups(key_hash(columns), max_parallelism)`.
    max_parallelism: int = 128


class Operator:
    """The base of all operators, which passes everything on. A subclass overrides at least `process`.

    The counters are plain integers, which other threads read.
    """

    output: Output
    #: Side outputs by tag: those that are read. Rows for others are dropped.
    sides: Mapping[str, Output] = MappingProxyType({})
    context: OperatorContext

    def __init__(self) -> None:
        self.rows_in = 0
        self.rows_out = 0
        self.late_rows = 0

    def open(self, context: OperatorContext) -> None:
        """Prepare for the first batch. The task thread calls this once, after it has set `output`."""
        self.context = context

    def process(self, batch: pa.RecordBatch) -> None:
        """Process one batch, which has at least one row."""
        self.emit(batch)

    def process_watermark(self, time: int) -> None:
        """Process a watermark: event time has reached `time`. The default passes it on."""
        self.output.emit_watermark(time)

    def process_status(self, active: bool) -> None:
        """Process a change of the input's status. The default passes it on."""
        self.output.emit_status(active)

    def end_input(self) -> None:
        """Emit the last results: the bounded input has ended. The watermark MAX_TIME came before."""

    def next_time(self) -> int | None:
        """Return when `on_processing_time` has work to do, in microseconds of the clock; None for never."""
        return None

    def on_processing_time(self) -> None:
        """Do the work that is due by the clock. The task calls this between two batches, at `next_time` or soon
        after."""

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the state; None for an operator without state. The task calls this between two batches."""
        return None

    def restore_ended(self, groups: Sequence[range]) -> None:
        """Note that the former subtasks with these key groups had ended before the checkpoint.

        They had emitted their results, and left no snapshot. The task calls this before `restore`; if all former
        subtasks had ended, it does not call `restore`.
        """

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Resume from the snapshots of the former subtasks, whose tables have the rows of this subtask's key groups
        only.

        The task calls this after `open` and before the first batch. Raises CheckpointError for another operator's
        state.
        """

    def close(self) -> None:
        """Free what `open` took. The task also calls this after a failure or a cancel, perhaps without `open`."""

    def state_keys(self) -> int:
        """Return the number of keys in the state."""
        return 0

    def state_bytes(self) -> int:
        """Return the size of the keyed state in bytes."""
        return 0

    def emit(self, batch: pa.RecordBatch) -> None:
        """Count a batch and send it to the output. Empty batches stop here, so no receiver has to expect them."""
        if batch.num_rows:
            self.rows_out += batch.num_rows
            self.output.emit(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        """Send a batch to a side output, if it is read."""
        if tag in self.sides and batch.num_rows:
            self.sides[tag].emit(batch)


#: A function that makes one subtask's operator. It is picklable, since it travels to the task: a `functools.partial`
#: of a class.
OperatorFactory = Callable[[], Operator]


def check_function(call: str, function: object) -> None:
    """Raise PlanError, which names the user's call, unless `function` is callable."""
    if not callable(function):
        raise PlanError(f"{call}: the first argument must be a function, not {function!r}")


def call_user(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function. Its exception becomes a UserFunctionError, which holds the traceback as text."""
    with UserCode(function):
        return function(*arguments)


class UserCode:
    """A context manager around a user's function: an exception becomes a UserFunctionError, except Headgate's own."""

    __slots__ = ("_function", "_process")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __enter__(self) -> None:
        self._process = os.getpid()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if os.getpid() != self._process:
            _end_child(self._function)
        # BaseExceptions count, too: sys.exit() in the function, and asyncio's CancelledError. Two kinds pass: an
        # interrupt, and a HeadgateError. A JobCancelled in the function is of another job, so it does not pass.
        is_ours = isinstance(error, HeadgateError) and not isinstance(error, JobCancelled)
        if error is not None and not is_ours and not isinstance(error, KeyboardInterrupt):
            text = "".join(traceback.format_exception(type(error), error, _user_traceback(error))).rstrip()
            what = f"{function_name(self._function)} raised {type(error).__name__}: {_message(error)}"
            raise UserFunctionError(f"{what}\n{text}") from None


def _end_child(function: Callable[..., Any]) -> Never:
    """End this process, the child of a fork in a user's function. Else it would run on as a second task with the same
    connections."""
    text = f"headgate: {function_name(function)} forked this process, and the child returned from it; it ends here\n"
    os.write(2, text.encode(errors="replace"))
    os._exit(1)


def _message(error: BaseException) -> str:
    """Return the message of a user's exception. Its `__str__` is the user's code, too, and may fail."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its message cannot be shown: {type(failure).__name__})"


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a user's function for errors."""
    return str(getattr(function, "__qualname__", None) or repr(function))


_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def _user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback from the user's first frame on. Headgate's own frames before it would only distract."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace
