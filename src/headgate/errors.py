"""Every error Headgate raises, on one screen.

An error says whose fault it is (its class), where it happened (`job`, `operator`, `subtask`) and what to do (its
message).
"""

from __future__ import annotations

import re
from typing import Any, Final

from headgate.redaction import redacted

#: What an error's message takes to the driver, characters.
_LONGEST_MESSAGE: Final = 1 << 16
#: Controls but tab and line feed, which terminals act upon; separators of lines and what turns the direction of text;
#: halves of surrogate pairs, which no encoding takes.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text of a peer's or of the data as terminals and logs may show it: what they would act upon is escaped as in
    Python's source."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class HeadgateError(Exception):
    """Base of all errors of this package.

    `job`, `operator` and `subtask` are filled in by the runtime where they are known.
    """

    job: str | None = None
    operator: str | None = None
    subtask: int | None = None

    def __init__(self, message: str) -> None:
        self.message = printable(redacted(message))
        super().__init__(self.message)

    def at(self, *, job: str | None = None, operator: str | None = None, subtask: int | None = None) -> HeadgateError:
        """Fill in the place where it is not known yet, and return self."""
        self.job = self.job or job
        self.operator = self.operator or operator
        self.subtask = self.subtask if self.subtask is not None else subtask
        return self

    def __str__(self) -> str:
        place = self.operator or ""
        if place and self.subtask is not None:
            place += f"[{self.subtask}]"
        return f"{place}: {self.message}" if place else self.message


def _shortened(message: str) -> str:
    left_out, half = len(message) - _LONGEST_MESSAGE, _LONGEST_MESSAGE // 2
    if left_out <= 0:
        return message
    return f"{message[:half]}\n... {left_out} characters left out ...\n{message[-half:]}"


class LostChangeWarning(UserWarning):
    """A function changes a variable of the program, but runs in another process, on a copy."""


class ConfigError(HeadgateError):
    """An option or command argument is unknown or impossible."""


class PlanError(HeadgateError):
    """The pipeline does not make sense: wrong column, schema or order of calls."""


class SourceError(HeadgateError):
    """A source cannot be read: missing file, bad line, wrong schema."""


class SinkError(HeadgateError):
    """A sink cannot be written."""


class ResultsGone(SinkError):
    """Finished files that a checkpoint names are not where the sink put them; the job is not started again."""


class UserFunctionError(HeadgateError):
    """A function of the user's raised, or did not return what it must. The message holds the remote traceback."""


class DataError(HeadgateError):
    """Values that an operator cannot take: a null event time, an integer sum that overflows, a duplicate lookup key."""


class TaskManagerLost(HeadgateError):
    """A TaskManager's process died or its connection was cut."""


class DriverLost(TaskManagerLost):
    """What a TaskManager ends with whose link to the driver was cut."""


class NotEnoughSlots(HeadgateError):
    """The deployment cannot run as many tasks at once as the job needs."""


class SessionLost(ConfigError):
    """The Spark session was stopped, or its JVM has ended; a job is not started again there."""


class InsufficientBuffers(ConfigError):
    """The network memory is too small for the job's channels."""


class ExchangeError(HeadgateError):
    """The exchange broke a rule of its own protocol, or data was corrupted on the way."""


class SpillError(HeadgateError):
    """A file that the exchange writes (long messages, output in batch mode, without credit what comes behind a barrier)
    cannot be had: no folder, no room."""


class PartitionNotFound(ExchangeError):
    """The result that a consumer asks for is not there (yet)."""


class StateMemoryExceeded(HeadgateError):
    """The operators of a TaskManager hold more than `max_state_memory`; the job is not started again."""


class CheckpointError(HeadgateError):
    """A checkpoint cannot be written or read, or is not of this job."""


class UnusableState(CheckpointError):
    """A checkpoint is as it was written, and holds what no such job wrote; the job is not started again."""


class StorageError(CheckpointError):
    """The place where checkpoints are does not do what is asked; the next time it may."""


class Superseded(HeadgateError):
    """Another program has taken over the job's checkpoints or results; this one ends and leaves them as they are."""


class JobCancelled(HeadgateError):
    """The job was cancelled."""


def to_wire(error: HeadgateError) -> dict[str, Any]:
    """Plain values from which `from_wire` rebuilds the error on the driver; nothing is pickled. Of a very long message
    the middle is left out: what a function raises may hold a value of any size."""
    return {
        "kind": type(error).__name__,
        "message": _shortened(error.message),
        "job": error.job,
        "operator": error.operator,
        "subtask": error.subtask,
    }


def from_wire(fields: dict[str, Any]) -> HeadgateError:
    """Rebuild an error sent by `to_wire`; an unknown kind becomes a plain HeadgateError."""
    kind = _KINDS.get(str(fields.get("kind")), HeadgateError)
    subtask = fields.get("subtask")
    return kind(_shortened(str(fields.get("message")))).at(
        job=_name(fields.get("job")),
        operator=_name(fields.get("operator")),
        subtask=subtask if isinstance(subtask, int) else None,
    )


def _name(name: object) -> str | None:
    return None if name is None else printable(_shortened(str(name)))


_KINDS = {cls.__name__: cls for cls in globals().values() if isinstance(cls, type) and issubclass(cls, HeadgateError)}
