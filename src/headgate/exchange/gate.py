"""InputGate: one input of a subtask, fair over its channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import TURN
from headgate.records.events import Event


def _ignore() -> None: ...


class InputGate:
    """Channels with data stand in one queue, once each; a poll takes a turn of the first and, if it has more, puts it
    at the end, so none starves (Flink: SingleInputGate). A turn is `TURN` segments, or all that came in one
    frame. A channel that is alone has all the turns.

    `on_data` is called, from any thread, when a channel joins the queue. There is no lock: a channel is taken off the
    queue *before* its data are looked at, so data that come after that look put it back, and a channel that two
    threads put there at once is only looked at in vain.

    Priority events stand in a queue of their own, to be asked for also while the task takes no data.
    """

    def __init__(self, on_data: Callable[[], None]) -> None:
        self._on_data = on_data
        self._ready: deque[int] = deque()
        self._queued: set[int] = set()
        self._priority: deque[int] = deque()
        #: Told, from any thread and before `on_data`, that there is a priority event.
        self.on_priority: Callable[[], None] = _ignore
        self.channels: Sequence[InputChannel] = ()

    def tell_first(self, told: Callable[[], None]) -> None:
        """Before any channel starts: call `told` before `on_data`."""
        then = self._on_data

        def both() -> None:
            told()
            then()

        self._on_data = both

    def notify(self, channel: int) -> None:
        """A channel has data."""
        if channel not in self._queued:
            self._queued.add(channel)
            self._ready.append(channel)
        self._on_data()

    def notify_priority(self, channel: int) -> None:
        """A channel has a priority event."""
        self._priority.append(channel)
        self.on_priority()
        self._on_data()

    def poll_priority(self) -> tuple[int, Event] | None:
        """One priority event and its channel's index; None when there is nothing."""
        while self._priority:
            channel = self._priority.popleft()
            event = self.channels[channel].poll_priority()
            if event is not None:
                return channel, event
        return None

    @property
    def has_data(self) -> bool:
        return bool(self._ready)

    def poll(self, limit: int = 1) -> tuple[int, list[Buffer] | Event] | None:
        """A channel's index, and its next buffers (`TURN` segments at most while others have any) or its next event;
        None when there is nothing."""
        ready = self._ready
        while ready:
            channel = ready.popleft()
            self._queued.discard(channel)
            polled, more = self.channels[channel].poll(min(limit, TURN) if ready else limit)
            if more and channel not in self._queued:
                self._queued.add(channel)
                ready.append(channel)
            if polled is not None:
                return channel, polled
        return None

    def validate(self) -> None:
        """Raises AssertionError unless each channel with data stands in the queue once; while no thread notifies."""
        assert sorted(self._ready) == sorted(self._queued), f"queue {list(self._ready)}, but noted {self._queued}"

    def release(self) -> None:
        for channel in self.channels:
            channel.release()
