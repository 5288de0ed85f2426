"""InputGate: one input of a subtask, which polls its channels in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import TURN
from headgate.records.events import Event


def _ignore() -> None: ...


class InputGate:
    """The channels of one input, polled in turn so that no channel starves (Flink: SingleInputGate).

    Each channel with data is in one queue once. A poll gives the first channel a turn. If the channel then has more
    data, the poll puts the channel at the end of the queue. A turn is about `TURN` segments. The only channel in the
    queue gets a longer turn.

    `on_data` is called, on any thread, when a channel joins the queue. There is no lock: `poll` removes a channel from
    the queue *before* it looks at the channel's data. Data that arrive later therefore queue the channel again. Two
    threads may queue a channel at once. One poll of the channel then returns nothing, which does no harm.

    Priority events have a queue of their own, which the task polls even while it takes no data.
    """

    def __init__(self, on_data: Callable[[], None]) -> None:
        self._on_data = on_data
        self._ready: deque[int] = deque()
        self._queued: set[int] = set()
        self._priority: deque[int] = deque()
        #: Called, on any thread and before `on_data`, when there is a priority event.
        self.on_priority: Callable[[], None] = _ignore
        self.channels: Sequence[InputChannel] = ()

    def notify_first(self, callback: Callable[[], None]) -> None:
        """Call `callback` before each `on_data`. Call this method before any channel starts."""
        on_data = self._on_data

        def both() -> None:
            callback()
            on_data()

        self._on_data = both

    def replace(self, index: int, channel: InputChannel) -> None:
        """Replace a channel by its wrapper, or a wrapper by its channel. Any thread may call it."""
        channels = list(self.channels)
        channels[index] = channel
        self.channels = channels

    def notify(self, channel: int) -> None:
        """Queue a channel that has data."""
        if channel not in self._queued:
            self._queued.add(channel)
            self._ready.append(channel)
        self._on_data()

    def notify_priority(self, channel: int) -> None:
        """Queue a channel that has a priority event."""
        self._priority.append(channel)
        self.on_priority()
        self._on_data()

    def poll_priority(self) -> tuple[int, Event] | None:
        """Return the index of a channel and its priority event, or None."""
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
        """Return (channel index, its next buffers or its next event), or None when no channel has data.

        The buffers have about `limit` segments, but at most `TURN` while other channels have data.
        """
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
        """Raise AssertionError unless each queued channel is in the queue once. Call it while no thread notifies."""
        assert sorted(self._ready) == sorted(self._queued), f"queue {list(self._ready)}, but noted {self._queued}"

    def release(self) -> None:
        """Release all channels."""
        for channel in self.channels:
            channel.release()
