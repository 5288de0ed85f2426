"""The two ends of an exchange, each in a process of its own: `python -m` this, asked by `exchange`.

Both are made of the runtime's own parts: a task that emits one prebuilt batch again and again, record writer,
partition, network threads and a real socket between them, credit, gate, and a task that takes the decoded batches.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.bench.conversation import serve
from headgate.config import Config, FlowControl
from headgate.errors import HeadgateError
from headgate.exchange.channels import BuffersOf, RemoteInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import Rebalance
from headgate.exchange.writer import RecordWriter
from headgate.memory.network_pool import NetworkBufferPool
from headgate.operators.operator import Operator, OperatorContext
from headgate.operators.rows import MapRows
from headgate.protocol.credit import BufferManager
from headgate.protocol.exclusive import ExclusiveBuffers
from headgate.protocol.handshake import TASKMANAGER, Identity
from headgate.protocol.messages import PartitionRequest
from headgate.protocol.plain_tcp import SharedBuffers
from headgate.protocol.sender import SubpartitionView
from headgate.records.arrow import BatchCodec
from headgate.runtime.launch.cores import own_cores
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.chain import ToOperator, joined
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.runtime.task.task import END, MORE, Head, InputHead, Task
from headgate.transport.data_link import ConsumerEnd, producer_end
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import tune
from headgate.transport.tls import LinkSocket, TlsSocket, client_context, server_context

SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64()), ("time", pa.timestamp("us", tz="UTC"))])
BATCH_ROWS = 8192
ROW_BYTES = 24
TIMEOUT = 60.0


def prebuilt_batch() -> pa.RecordBatch:
    """What is sent: three columns of eight bytes each."""
    numbers = np.arange(BATCH_ROWS)
    columns = [pa.array(numbers), pa.array(numbers * 0.5), pa.array(numbers * 1000).cast(SCHEMA.field("time").type)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class _End:
    """What either end has: a socket, a network thread, segments, and one task, run on the calling thread."""

    def __init__(self, config: Config, sock: socket.socket, identity: Identity | None, server: str | None) -> None:
        tune(sock)
        self.config = config
        self.network = NetworkThread("bench")
        self.socket: LinkSocket = sock
        if identity is not None:
            context = server_context(identity) if server is None else client_context(identity)
            self.socket = _secured(TlsSocket(sock, context, self.network.hold, server))
        self.pool = NetworkBufferPool(config.network_memory // config.segment_size, config.segment_size, threading.Lock)
        self.mailbox = Mailbox()
        self._error: HeadgateError | None = None

    def run(self, head: Head, operators: list[ToOperator], writers: list[RecordWriter]) -> None:
        """Run the task to its end; raises what ended it."""
        task = Task("bench", head, operators, writers, self.mailbox, self.mailbox.wake, self._done)
        task.begin()
        task.run()
        if self._error is not None:
            raise self._error

    def lost(self, reason: str) -> None:
        self.mailbox.put(lambda: _fail(f"the data link broke: {reason}"))

    def _done(self, task: Task, error: HeadgateError | None) -> None:
        self._error = error


def _secured(sock: TlsSocket) -> TlsSocket:
    while not sock.shake_hands():
        select.select([sock], [], [], TIMEOUT)
    return sock


def _fail(reason: str) -> None:
    raise HeadgateError(reason)


class _PrebuiltHead:
    """Emits the same batch a number of times."""

    def __init__(self, batches: int, writer: RecordWriter) -> None:
        self._left = batches
        self._writer = writer
        self._batch = prebuilt_batch()

    def step(self) -> float:
        if not self._left:
            return END
        self._left -= 1
        self._writer.emit(self._batch)
        return MORE

    def end(self) -> None:
        self._writer.finish()

    def on_backpressure(self, begins: bool) -> None: ...

    def close(self) -> None: ...


def produce(config: Config, sock: socket.socket, identity: Identity | None, batches: int, channels: int) -> None:
    """Send so many batches, to the channels in turn, to who asks for them on this socket, under TLS with an identity;
    returns when all were taken."""
    end = _End(config, sock, identity, None)
    local = end.pool.create_local_pool(
        "output",
        required=channels + 1,
        maximum=channels * config.buffers_per_channel + config.floating_buffers_per_gate,
        subpartitions=channels,
        max_per_subpartition=config.max_buffers_per_channel,
        max_overdraft=config.max_overdraft_buffers_per_gate,
    )
    partition = ResultPartition(
        "output", channels, local, config.max_buffers_per_channel, threading.Lock, end.mailbox.wake, end.mailbox.wake
    )
    writer = RecordWriter(
        partition,
        Rebalance(channels, 0),
        BatchCodec(SCHEMA),
        PendingBudget(),
        message_size=config.message_size,
        buffer_timeout=config.buffer_timeout,
        watermark_interval=config.watermark_interval,
        clock=time.monotonic,
        wait_within_record=lambda writer: _fail("one batch filled the pending budget"),
    )

    def open_view(request: PartitionRequest, notify: Callable[[], None]) -> SubpartitionView:
        subpartition = partition.subpartitions[request.subpartition]
        subpartition.attach(notify)
        return subpartition

    link = producer_end(end.network, end.socket, 1, open_view, end.lost, config.flow_control)
    end.network.start()
    end.network.post(link.start)
    try:
        end.run(_PrebuiltHead(batches, writer), [], [writer])
        while not partition.is_consumed:
            end.mailbox.wait(0.05)
    finally:
        end.network.post(link.close)
        end.network.stop(TIMEOUT)


class _Count(Operator):
    """Takes decoded batches; the clock starts with the first, which is not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.began = 0.0
        self.seconds = 0.0

    def process(self, batch: pa.RecordBatch) -> None:
        if self.began:
            self.rows += batch.num_rows
        else:
            self.began = time.perf_counter()

    def end_input(self) -> None:
        self.seconds = time.perf_counter() - self.began


def _buffers_of_channels(pool: NetworkBufferPool, config: Config, channels: int) -> list[BuffersOf]:
    """As many buffers for the channels in every mode."""
    if config.flow_control is not FlowControl.CREDIT:
        most = channels * config.buffers_per_channel + config.floating_buffers_per_gate
        shared = pool.create_local_pool("shared", 1, most)
        return [partial(SharedBuffers, shared, lock_factory=threading.Lock) for _ in range(channels)]
    floating = pool.create_local_pool("floating", 1, config.floating_buffers_per_gate)
    exclusive = ExclusiveBuffers(pool, "exclusive")
    count = config.buffers_per_channel
    buffers_of = partial(BufferManager, exclusive, count, floating, channels, lock_factory=threading.Lock)
    return [buffers_of] * channels


def _same_row(row: dict[str, Any]) -> dict[str, Any]:
    """What a user's function on rows does at least."""
    return row


def _chain(count: _Count, row_function: bool) -> list[ToOperator]:
    """The consumer's operators, the last first: what counts, and before it a function on rows, if asked for."""
    count.output = joined([])
    chain = [ToOperator(count, OperatorContext("bench", "count", 0, 1))]
    if row_function:
        rows = MapRows(_same_row, SCHEMA)
        rows.output = joined(list(chain))
        chain.append(ToOperator(rows, OperatorContext("bench", "map", 0, 1)))
    return chain


def consume(
    config: Config, sock: socket.socket, identity: Identity | None, channels: int, row_function: bool
) -> dict[str, Any]:
    """Take all that comes on this socket: payload bytes, and the seconds they took."""
    end = _End(config, sock, identity, TASKMANAGER)
    gate = InputGate(end.mailbox.wake)
    link = ConsumerEnd(end.network, 0, config.segment_size, end.lost, config.flow_control)
    made = [
        RemoteInputChannel(index, (0, 0, index), buffers_of, gate.notify, gate.notify_priority, link)
        for index, buffers_of in enumerate(_buffers_of_channels(end.pool, config, channels))
    ]
    gate.channels = made
    for channel in made:
        link.request(channel)
    count = _Count()
    chain = _chain(count, row_function)
    end.network.start()
    end.network.post(lambda: link.established(end.socket))
    try:
        barriers = TaskBarriers("bench", [gate], [], lambda part: None)
        task_input = TaskInput([gate], [BatchCodec(SCHEMA)], config.message_size, barriers)
        end.run(InputHead(task_input, chain[-1]), chain, [])
        gate.release()
    finally:
        end.network.post(link.close)
        end.network.stop(TIMEOUT)
    buffers = sum(channel.buffers_in for channel in made)
    return {"bytes": count.rows * ROW_BYTES, "seconds": count.seconds, "buffers": buffers}


def _identity(request: dict[str, Any]) -> Identity | None:
    """For links under TLS: certificates and key as text."""
    return Identity(*(part.encode() for part in request["identity"])) if "identity" in request else None


class _Process:
    """Answers `listen`, then `result`, in the producer's process; `consume` in the consumer's."""

    def __init__(self) -> None:
        self._sending = threading.Thread()
        self._error: Exception | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "listen":
                listener = socket.create_server(("127.0.0.1", 0))
                config, identity = Config(**request["config"]), _identity(request)
                arguments = (config, listener, identity, request["batches"], request["channels"])
                self._sending = threading.Thread(target=self._send, args=arguments)
                self._sending.start()
                return {"port": listener.getsockname()[1]}
            case "consume":
                sock = socket.create_connection(("127.0.0.1", request["port"]), TIMEOUT)
                config, identity = Config(**request["config"]), _identity(request)
                return consume(config, sock, identity, request["channels"], request["row_function"])
            case _:
                self._sending.join(TIMEOUT)
                if self._error is not None:
                    raise self._error
                return {}

    def _send(
        self, config: Config, listener: socket.socket, identity: Identity | None, batches: int, channels: int
    ) -> None:
        try:
            with listener:
                listener.settimeout(TIMEOUT)
                sock, _ = listener.accept()
            with sock:  # whatever happens, the consumer must not wait for more
                produce(config, sock, identity, batches, channels)
        except Exception as error:
            self._error = error


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    pa.set_cpu_count(1)
    with own_cores(int(sys.argv[1]), 2):
        serve(_Process().answer)
