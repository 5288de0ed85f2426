"""A TaskManager's link to the driver: its messages, and the batches of sinks that deliver there, under a window."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headgate.errors import TaskManagerLost
from headgate.protocol.handshake import CONTROL_LINK
from headgate.runtime.deployment import TaskManagerSpec
from headgate.runtime.task import Task
from headgate.transport.control_link import ControlLink, Message
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial

#: Bytes on their way to the driver, per TaskManager, before the sinks that deliver there wait.
_DELIVERY_WINDOW = 4 << 20


class DriverLink:
    """`on_message` and `on_lost` run on the network thread; what is sent goes nowhere before `connect`, and after the
    link was lost."""

    def __init__(
        self,
        network: NetworkThread,
        spec: TaskManagerSpec,
        index: int,
        on_message: Callable[[Message], None],
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
        """Also after it was lost."""
        return self._control is not None

    def connect(self) -> None:
        """Raises TaskManagerLost when the driver cannot be reached."""
        connected: queue.SimpleQueue[ControlLink | str] = queue.SimpleQueue()

        def established(sock: Any) -> None:
            heartbeat = self._spec.config.heartbeat_timeout
            link = ControlLink(
                self._network, sock, heartbeat, lambda message, payload: self._on_message(message), self._on_lost
            )
            link.start()
            connected.put(link)

        spec = self._spec
        address, credentials = spec.control_address, spec.credentials
        dial = Dial(self._network, address, credentials, CONTROL_LINK, self._index, established, connected.put)
        self._network.post(dial.start)
        link = connected.get()
        if isinstance(link, str):
            raise TaskManagerLost(f"TaskManager {self._index} cannot reach the driver at {link}")
        self._control = link

    def send(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """From any thread."""
        if self._control is not None:
            self._control.send(message, payload)

    def deliver(self, node: int, batch: pa.RecordBatch, checkpoint: int, task: Task) -> None:
        """On a task's thread: a sink's batch, and the checkpoint that it belongs to, as soon as there is room for it in
        the window."""
        task.wait_until(lambda: self._undelivered < _DELIVERY_WINDOW)
        payload = memoryview(batch.serialize()).cast("B")
        with self._lock:
            self._undelivered += len(payload)
        self.send({"type": "deliver", "node": node, "bytes": len(payload), "checkpoint": checkpoint}, payload)

    def delivered(self, size: int) -> None:
        """The driver has taken so many bytes; tasks that wait for room are woken by the caller."""
        with self._lock:
            self._undelivered -= size

    def close(self) -> None:
        """What is queued is sent as far as the kernel takes it."""
        if self._control is not None:
            self._network.post(self._control.close)
