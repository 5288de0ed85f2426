"""The head of a source that sends failed messages again, for the throttle `MaxPending`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from headgate.runtime.task.heads import END, MORE, SourceHead
from headgate.runtime.task.throttled_head import GatedSourceHead
from headgate.runtime.taskmanager.throttling.source_output import EachBatch
from headgate.throttle.acker import AnchoredMessage, TreeEnded, TreeStarted
from headgate.throttle.max_pending import PendingSource


class CurrentMessage(Protocol):
    """Holds the message that the task sends now. Its field `message` is None between two messages."""

    message: AnchoredMessage | None


class ReplayingHead(GatedSourceHead[SourceHead]):
    """A `Head` that wraps the head of a source. Each batch is a message, which is pending until all tasks have
    processed it.

    The head reads only while its policy permits. It sends failed messages before it reads more. It ends when the
    source has ended and all messages are processed. It calls `started` for each message that it has sent.
    """

    def __init__(
        self,
        source: SourceHead,
        policy: PendingSource[pa.RecordBatch],
        current: CurrentMessage,
        started: Callable[[TreeStarted], None],
    ) -> None:
        super().__init__(source)
        self._policy = policy
        self._current = current
        self._started = started
        self._output = source.output
        source.output = EachBatch(source.output, self._emit)
        self._has_ended = False
        #: How many failed messages the head has sent again.
        self.replayed = 0

    def step(self, now: float) -> float:
        policy = self._policy
        if now >= policy.next_rotation:
            policy.rotate(now)
        if policy.failed:
            self.replayed += 1
            self._emit(policy.failed.popleft())
            return MORE
        may_read = self._head.is_held or policy.permit(now) <= now
        if may_read and not self._has_ended:
            until = self._head.step(now)
            self._has_ended = until == END
            if not self._has_ended:
                self._throttle(False, now)
                return min(until, policy.next_rotation)
        if self._has_ended and not policy.pending:
            self._throttle(False, now)
            return END
        self._throttle(True, now)
        return policy.next_rotation

    def _emit(self, batch: pa.RecordBatch) -> None:
        tree = self._current.message = self._policy.open_tree()
        self._output.emit(batch)
        self._current.message = None
        started = self._policy.close_tree(batch, tree)
        if started is not None:
            self._started(started)

    def on_ended(self, ended: TreeEnded) -> None:
        """Note that a message is fully processed. Runs on the task's thread."""
        self._policy.on_signal(0.0, ended)
