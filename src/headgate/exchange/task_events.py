"""Task events at the producer: from the consumers of a result partition to whoever in its task has asked for them."""

from __future__ import annotations

from collections.abc import Callable

from headgate.records.task_event import TaskEvent

#: Runs on the network thread, or on the task thread of a consumer in the same TaskManager: it must be short, and leave
#: what concerns the task to its mailbox.
TaskEventListener = Callable[[TaskEvent], None]


class TaskEventDispatcher:
    """Of one result partition; any thread. What nobody has asked for is forgotten, as is all that comes after `close`:
    a consumer cannot know whether its producer still runs."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[TaskEventListener, ...]] = {}
        self._closed = False

    def subscribe(self, kind: int, listener: TaskEventListener) -> None:
        """Be told of the events of one kind, from any consumer. Before the task runs, on one thread."""
        self._listeners[kind] = (*self._listeners.get(kind, ()), listener)

    def publish(self, event: TaskEvent) -> None:
        """A consumer has sent an event."""
        if not self._closed:
            for listener in self._listeners.get(event.kind, ()):
                listener(event)

    def close(self) -> None:
        """The task is over."""
        self._closed = True
