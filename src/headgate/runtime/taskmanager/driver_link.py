"""A TaskManager's link to the driver. It carries messages, and batches of sinks that run on the driver.

A window limits the bytes of batches that the driver has not taken yet.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headgate.errors import DataError, HeadgateError, TaskManagerLost, to_wire
from headgate.protocol.handshake import CONTROL_LINK
from headgate.runtime.control_messages import OF_TASKMANAGER, DeliverRows, Failed, FromDriver, FromTaskManager
from headgate.runtime.deployment import TaskManagerSpec
from headgate.runtime.task.task import Task
from headgate.transport.control_link import ControlLink, TooLong
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial

#: The window: sinks of a TaskManager wait while this many bytes are on the way to the driver. The link sends larger
#: batches in pieces.
_DELIVERY_WINDOW = 4 << 20
#: The most bytes of one row. This is less than the most bytes of a frame.
_LARGEST_ROW = 255 << 20


class DriverLink:
    """The control link of a TaskManager.

    The network thread calls `on_message` and `on_lost`. The link drops messages before `connect`, and after it is lost.
    `_lock` protects `_undelivered`.
    """

    def __init__(
        self,
        network: NetworkThread,
        spec: TaskManagerSpec,
        index: int,
        on_message: Callable[[FromDriver], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._network = network
        self._spec = spec
        self._index = index
        self._on_message = on_message
        self._on_lost = on_lost
        self._control: ControlLink | None = None
        self._undelivered = 0
        self._lock = threading.Lock()

    @property
    def is_connected(self) -> bool:
        """Whether the link was ever established. It may be lost now."""
        return self._control is not None

    def connect(self) -> None:
        """Connect to the driver. Raises TaskManagerLost if the driver cannot be reached."""
        connected: queue.SimpleQueue[ControlLink | str] = queue.SimpleQueue()

        def established(sock: Any) -> None:
            link = ControlLink(
                self._network,
                sock,
                heartbeat_timeout=self._spec.config.heartbeat_timeout,
                codec=OF_TASKMANAGER,
                on_message=lambda message, payload: self._on_message(message),
                on_lost=self._on_lost,
            )
            link.start()
            connected.put(link)

        spec = self._spec
        address, credentials = spec.control_address, spec.credentials
        dial = Dial(
            self._network,
            address,
            credentials=credentials,
            kind=CONTROL_LINK,
            peer=self._index,
            established=established,
            failed=connected.put,
        )
        self._network.post(dial.start)
        link = connected.get()
        if isinstance(link, str):
            raise TaskManagerLost(f"TaskManager {self._index} cannot reach the driver at {link}")
        self._control = link

    def send(self, message: FromTaskManager, payload: bytes | memoryview = b"") -> None:
        """Send a message. If it is too long, send an error that ends the job instead. Any thread may call this."""
        if self._control is None:
            return
        try:
            self._control.send(message, payload)
        except TooLong as error:
            failed = HeadgateError(
                f"TaskManager {self._index} has a message ({type(message).__name__}) that is too long for the "
                f"driver: {error}. Raise the parallelism, or let sinks finish fewer files at a time (shorter "
                "intervals between checkpoints, fewer folders of partition_by)"
            )
            self._control.send(Failed(error=to_wire(failed)))

    def deliver(self, node: int, batch: pa.RecordBatch, checkpoint: int, task: Task) -> None:
        """Send a sink's batch, with the checkpoint that the batch belongs to. Waits until the window has room.

        Runs on the task's thread. Raises DataError for a row that is too long.
        """
        for payload in _pieces(batch):
            task.wait_until(lambda: self._undelivered < _DELIVERY_WINDOW)
            with self._lock:
                self._undelivered += len(payload)
            self.send(DeliverRows(node=node, size=len(payload), checkpoint=checkpoint), payload)

    def delivered(self, size: int) -> None:
        """Record that the driver has taken `size` bytes. The caller wakes tasks that wait for room."""
        with self._lock:
            self._undelivered -= size

    def close(self) -> None:
        """Close the link. Messages in the queue are sent only if the kernel takes them at once."""
        if self._control is not None:
            self._network.post(self._control.close)


def _pieces(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """Split the rows into messages no larger than the window. A row that is larger becomes a message of its own.

    Raises DataError for a row of more than `_LARGEST_ROW` bytes.
    """
    size = pa.ipc.get_record_batch_size(batch)
    if size <= _DELIVERY_WINDOW or (batch.num_rows == 1 and size <= _LARGEST_ROW):
        yield memoryview(batch.serialize()).cast("B")
        return
    if batch.num_rows == 1:
        raise DataError(
            f"a row has {size} bytes, and the driver takes at most {_LARGEST_ROW}; leave out or shorten "
            "its columns, or write the rows to files"
        )
    rows = max(1, batch.num_rows // -(-size // _DELIVERY_WINDOW))
    for begin in range(0, batch.num_rows, rows):
        yield from _pieces(batch.slice(begin, rows))
