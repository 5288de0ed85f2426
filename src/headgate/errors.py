"""Every error that Headgate raises.

The class of an error says whose fault it is. Its `job`, `operator` and `subtask` say where it happened. Its message
says what to do.
"""

from __future__ import annotations

import re
from typing import Any, Final

from headgate.redaction import redacted

#: The longest message that a TaskManager sends to the driver, in characters.
_LONGEST_MESSAGE: Final = 1 << 16
#: Control characters except tab and line feed, because terminals obey them; separators of lines; characters that change
#: the direction of text; and halves of surrogate pairs, because no encoding accepts them.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text in a form that is safe in terminals and logs. The text may come from a peer or from the data.

    Characters that a terminal would obey are escaped as in Python source.

    >>> printable("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class HeadgateError(Exception):
    """The base class of all errors of this package.

    Its attributes are `message`, `job`, `operator` and `subtask`. The runtime sets the last three where it knows them;
    otherwise they are None. A subtask is a number from 0.
    """

    job: str | None = None
    operator: str | None = None
    subtask: int | None = None

    def __init__(self, message: str) -> None:
        self.message = printable(redacted(message))
        super().__init__(self.message)

    def at(self, *, job: str | None = None, operator: str | None = None, subtask: int | None = None) -> HeadgateError:
        """Set those of `job`, `operator` and `subtask` that are still None. Return the error itself."""
        self.job = self.job or job
        self.operator = self.operator or operator
        self.subtask = self.subtask if self.subtask is not None else subtask
        return self

    def __str__(self) -> str:
        place = self.operator or ""
        if place and self.subtask is not None:
            place += f"[{self.subtask}]"
        message = self.message.removeprefix(f"{self.operator}: ")  # both may begin with the connector's name
        return f"{place}: {message}" if place else self.message


def _shortened(message: str) -> str:
    excess, half = len(message) - _LONGEST_MESSAGE, _LONGEST_MESSAGE // 2
    if excess <= 0:
        return message
    return f"{message[:half]}\n... {excess} characters left out ...\n{message[-half:]}"


class LostChangeWarning(UserWarning):
    """The job calls a function that changes a variable of the program, but only in copies in other processes."""


class ConfigError(HeadgateError):
    """An option or command argument is unknown or impossible."""


class PlanError(HeadgateError):
    """The pipeline is wrong: for example an unknown column, a wrong schema, or calls in the wrong order."""


class SourceError(HeadgateError):
    """A source cannot be read: for example a missing file, a bad line, or a wrong schema."""


class SinkError(HeadgateError):
    """A sink cannot be written."""


class ResultsGone(SinkError):
    """A checkpoint names finished files that are not where the sink put them. The job does not restart."""


class UserFunctionError(HeadgateError):
    """A function of the user raised an error, or returned a wrong value. The message has the remote traceback."""


class DataError(HeadgateError):
    """An operator got a value that it cannot process: for example a null event time, an integer sum that overflows, or
    a duplicate key of a lookup table."""


class TaskManagerLost(HeadgateError):
    """The process of a TaskManager died, or its connection to the driver was cut."""


class DriverLost(TaskManagerLost):
    """The connection of a TaskManager to the driver was cut. The TaskManager ends with this error."""


class NotEnoughSlots(HeadgateError):
    """The deployment cannot run as many tasks at once as the job needs."""


class SessionLost(ConfigError):
    """The Spark session was stopped, or its JVM has ended. The job does not restart in that session."""


class InsufficientBuffers(ConfigError):
    """The network memory is too small for the job's channels."""


class NetworkMemoryFull(InsufficientBuffers):
    """The data that wait have filled `network_memory`.

    This happens only with `flow_control="unbounded"`, or with a throttle that does not slow the senders in time.
    """


class ExchangeError(HeadgateError):
    """The exchange broke a rule of its own protocol, or data was corrupted on the way."""


class SpillError(HeadgateError):
    """The exchange cannot write a file, because the folder is missing or the disk is full.

    The exchange writes long messages and the output of batch mode to files. Without `flow_control="credit"`, it also
    writes data that wait behind a checkpoint barrier.
    """


class PartitionNotFound(ExchangeError):
    """A consumer asked for a result that the producer does not have, or does not have yet."""


class StateMemoryExceeded(HeadgateError):
    """The operators of a TaskManager hold more memory than `max_state_memory`. The job does not restart."""


class CheckpointError(HeadgateError):
    """A checkpoint cannot be written or read, or belongs to another job."""


class UnusableState(CheckpointError):
    """The checksums of a checkpoint are right, but a job cannot have written the content. The job does not restart."""


class StorageError(CheckpointError):
    """The storage of checkpoints failed. The next attempt may succeed."""


class RecordingError(HeadgateError):
    """A recording of a job's metrics cannot be written or read, or its page cannot be saved."""


class ProfileError(HeadgateError):
    """A function cannot be profiled: there is no such operator, its task has ended, or its job has failed."""


class TraceError(HeadgateError):
    """A channel cannot be traced: there is no such channel, its tasks have ended, or its job failed meanwhile."""


class Superseded(HeadgateError):
    """Another program has taken over the job's checkpoints or results. This program ends and does not change them."""


class JobCancelled(HeadgateError):
    """The job was cancelled."""


def to_wire(error: HeadgateError) -> dict[str, Any]:
    """Return plain values from which `from_wire` rebuilds the error on the driver, without pickle.

    The middle of a very long message is left out, because a user's error may hold a value of any size.
    """
    return {
        "kind": type(error).__name__,
        "message": _shortened(error.message),
        "job": error.job,
        "operator": error.operator,
        "subtask": error.subtask,
    }


def from_wire(fields: dict[str, Any]) -> HeadgateError:
    """Rebuild an error from the values of `to_wire`. An unknown class becomes HeadgateError."""
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
