"""What an operator is: one subtask's instance, driven by its task thread, one batch at a time.

An operator does no I/O of its own, starts no thread and is called by one thread only. What comes out goes to
`self.output`; whether that is the next operator of the chain (a direct call) or a RecordWriter it cannot tell.
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
    """Where an operator's results go."""

    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_watermark(self, time: int) -> None:
        """Nothing earlier than `time` (microseconds) will follow, late rows excepted."""

    def emit_status(self, active: bool) -> None:
        """An idle stream does not hold back the watermark of those that read it."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator may know of where it runs."""

    job: str
    operator: str
    subtask: int
    parallelism: int
    #: Key groups of the whole operator: a key's is `key_groups(key_hash(columns), max_parallelism)`.
    max_parallelism: int = 128


class Operator:
    """Base of all operators; the default passes everything on. Subclasses override `process` at least.

    Counters are plain integers, read by other threads.
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
        """Called once, before the first batch, on the task thread. `output` is set already."""
        self.context = context

    def process(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Never called with zero rows."""
        self.emit(batch)

    def process_watermark(self, time: int) -> None:
        """Event time has reached `time`; by default it is passed on."""
        self.output.emit_watermark(time)

    def process_status(self, active: bool) -> None:
        self.output.emit_status(active)

    def end_input(self) -> None:
        """The bounded input has ended (after the watermark MAX_TIME); emit what is left."""

    def next_time(self) -> int | None:
        """When `on_processing_time` has something to do, in microseconds of the clock; None for never."""
        return None

    def on_processing_time(self) -> None:
        """Do what is due by the clock. Called between two batches, at `next_time` or soon after."""

    def snapshot(self) -> Snapshot | None:
        """What it holds now, copied; None for an operator without state. Called between two batches."""
        return None

    def restore_ended(self, groups: Sequence[range]) -> None:
        """Before `restore`: the subtasks that had these key groups had ended, so their results are out and they left no
        snapshot. Where all had, there is no call of `restore`."""

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """After `open` and before the first batch: resume from what the subtasks there were held. Tables have the rows
        of this subtask's key groups only. Raises CheckpointError for what is not of this operator."""

    def close(self) -> None:
        """Free what `open` took; also called after a failure or a cancel, perhaps without `open`."""

    def state_keys(self) -> int:
        """Keys held now."""
        return 0

    def state_bytes(self) -> int:
        """Bytes of keyed state held now."""
        return 0

    def emit(self, batch: pa.RecordBatch) -> None:
        """Count and hand on; empty batches are swallowed here, so no one else has to look."""
        if batch.num_rows:
            self.rows_out += batch.num_rows
            self.output.emit(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        """Hand on to a side output, if it is read."""
        if tag in self.sides and batch.num_rows:
            self.sides[tag].emit(batch)


#: Makes one subtask's operator; picklable, since it travels in the task closure (`functools.partial` of a class).
OperatorFactory = Callable[[], Operator]


def check_function(where: str, function: object) -> None:
    """Raises PlanError unless it can be called."""
    if not callable(function):
        raise PlanError(f"{where}: the first argument must be a function, not {function!r}")


def call_user(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; what it raises becomes a UserFunctionError that holds the traceback as text."""
    with UserCode(function):
        return function(*arguments)


class UserCode:
    """A block that runs a user's function: what it raises becomes a UserFunctionError, errors of ours excepted."""

    __slots__ = ("_function", "_process")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __enter__(self) -> None:
        self._process = os.getpid()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if os.getpid() != self._process:
            _end_child(self._function)
        # What is no Exception, too: that of sys.exit(), asyncio's CancelledError. An interrupt is not theirs.
        # Nor is a HeadgateError, except that of another job's cancel: this job was not cancelled.
        ours = isinstance(error, HeadgateError) and not isinstance(error, JobCancelled)
        if error is not None and not ours and not isinstance(error, KeyboardInterrupt):
            text = "".join(traceback.format_exception(type(error), error, _without_us(error))).rstrip()
            what = f"{function_name(self._function)} raised {type(error).__name__}: {_said(error)}"
            raise UserFunctionError(f"{what}\n{text}") from None


def _end_child(function: Callable[..., Any]) -> Never:
    """Of a function that forked this process: it would go on as a second task of the same connections."""
    text = f"headgate: {function_name(function)} forked this process, and the child returned from it; it ends here\n"
    os.write(2, text.encode(errors="replace"))
    os._exit(1)


def _said(error: BaseException) -> str:
    """Its message; making it is the user's code too."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its message cannot be shown: {type(failure).__name__})"


def function_name(function: Callable[..., Any]) -> str:
    """What to call a user's function in an error."""
    return str(getattr(function, "__qualname__", None) or repr(function))


_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def _without_us(error: BaseException) -> TracebackType | None:
    """The traceback from the user's own frame on; our frames would only hide it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace
