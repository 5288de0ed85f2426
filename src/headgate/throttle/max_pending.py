"""MaxPending: a source waits while too many of its messages are not processed yet, as in Storm before 1.0.

Facts and defaults are those of Storm 0.9.7: the options `topology.max.spout.pending` and
`topology.message.timeout.secs`, and the loop of a spout in `executor.clj`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from headgate.errors import ConfigError
from headgate.throttle.acker import AnchoredMessage, TreeEnded, TreeStarted
from headgate.throttle.mechanism import NEVER, ComparedMechanism, JobOptions, Task
from headgate.throttle.rotating_map import RotatingMap
from headgate.throttle.validation import Duration, duration, duration_above_zero, whole_number

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class MaxPending(ComparedMechanism):
    """Storm before 1.0: each subtask of a source has at most `messages` messages that are not processed yet.

    With `messages=None` there is no limit. A message counts until everything that came from it is processed, or until
    it has failed, because this took longer than `timeout` (up to twice as long). The source then sends the failed
    message again, although parts of it may be processed: **rows are doubled**. Keep `messages` times the time
    that a message takes below `timeout`: otherwise messages fail that only wait, and a job may send them again for
    ever. Without `acking`, a message counts as processed when it is sent, so there is no limit. For `over_credit` see
    docs/concepts/mechanisms.md. Raises ConfigError for impossible values.

    >>> hg.throttle.MaxPending(1000)
    MaxPending(messages=1000, timeout=30.0, acking=True)
    """

    has_queue: ClassVar[bool] = False
    messages: int | None = None
    timeout: Duration = 30.0
    acking: bool = True

    def __post_init__(self) -> None:
        if self.messages is not None:
            whole_number("messages", self.messages, least=1)
        duration_above_zero("timeout", self.timeout)
        if not isinstance(self.acking, bool):
            raise ConfigError(f"acking={self.acking!r} is impossible: it must be True or False")

    def check(self, job: JobOptions) -> None:
        super(MaxPending, self).check(job)
        if self.acking and job.has_checkpoints:
            raise ConfigError(
                f"throttle={self} sends failed messages again, which doubles rows, and a job with checkpoint_dir must "
                "not double any: leave one out"
            )
        if self.acking and not job.flushes_each_batch:
            raise ConfigError(
                f"throttle={self} needs buffer_timeout=0: otherwise a message has rows of several batches, and its id "
                "belongs to only one of them"
            )

    def pending_source(self, task: Task, now: float, random_id: Callable[[], int]) -> PendingSource[M]:
        """Return the policy of one subtask of a source, with acking. `random_id` returns a random number of 64 bits."""
        return PendingSource(self, task, now, random_id)


class PendingSource(Generic[M]):
    """The source policy of MaxPending: it keeps the messages that are not processed yet, and those to send again.

    The task calls `open_tree` and `close_tree` for each message instead of `emitted`, and `rotate` at `next_rotation`.
    """

    def __init__(self, mechanism: MaxPending, task: Task, now: float, random_id: Callable[[], int]) -> None:
        self._limit = mechanism.messages
        self._timeout = duration("timeout", mechanism.timeout)
        self._task = task
        self._random_id = random_id
        self._pending: RotatingMap[int, M] = RotatingMap()
        #: Messages that have failed, the oldest first. The source sends them before it reads on.
        self.failed: deque[M] = deque()
        self.next_rotation = now + self._timeout

    @property
    def pending(self) -> int:
        """The number of messages that were sent and have neither been processed nor failed."""
        return len(self._pending)

    def permit(self, now: float) -> float:
        is_full = self._limit is not None and self.pending >= self._limit
        return NEVER if is_full else now

    def emitted(self, now: float, rows: int) -> None: ...

    def open_tree(self) -> AnchoredMessage:
        """Start the tree of a message. `send` of the result returns the id of each message to send."""
        return AnchoredMessage(self._random_id(), 0, self._random_id)

    def close_tree(self, message: M, tree: AnchoredMessage) -> TreeStarted | None:
        """Note that a message was sent. Return what the acker must know, or None for a message that went nowhere: it is
        processed."""
        if not tree.sent:
            return None
        sent = tree.done()
        self._pending.put(sent.root, message)
        return TreeStarted(sent.root, sent.ids, self._task)

    def on_signal(self, now: float, signal: TreeEnded) -> None:
        """Note that a message is processed. If it has failed before, by its timeout, that stays so."""
        self._pending.pop(signal.root)

    def rotate(self, now: float) -> None:
        """Fail the messages that were sent before the last rotation. The task calls this at `next_rotation`."""
        self.next_rotation = now + self._timeout
        self.failed.extend(self._pending.rotate().values())
