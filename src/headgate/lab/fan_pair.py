"""The two ends of an exchange with many channels, each in a process of its own: `python -m` this, asked by
`buffer_timeout`.

Some writers deal rows by chance to as many gates as asked, all read by one union in the other process. Both ends are
made of the runtime's own parts: tasks, record writers, partitions, network threads and one socket between them, credit,
gates, and one task over all of them.
"""

from __future__ import annotations

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
from headgate.config import Config
from headgate.errors import HeadgateError
from headgate.exchange.channels import RemoteInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import Shuffle
from headgate.exchange.writer import RecordWriter
from headgate.lab.latencies import BUCKETS, Counts, buckets
from headgate.memory.network_pool import NetworkBufferPool
from headgate.operators.operator import Operator, OperatorContext
from headgate.protocol.credit import BufferManager
from headgate.protocol.exclusive import ExclusiveBuffers
from headgate.protocol.messages import PartitionRequest
from headgate.protocol.sender import SubpartitionView
from headgate.records.arrow import BatchCodec
from headgate.runtime.launch.cores import own_cores
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.chain import ToOperator, joined
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.runtime.task.task import END, MORE, InputHead, Task
from headgate.transport.data_link import ConsumerEnd, ProducerEnd
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import tune

#: `due` in microseconds since the epoch: when the row ought to leave; at full speed, when it was made.
SCHEMA = pa.schema([("due", pa.int64()), ("number", pa.int64()), ("value", pa.float64())])
BATCH_ROWS = 8192
TIMEOUT = 60.0
_US = 1_000_000


class _PacedHead:
    """Rows at `rate` per second (None: as fast as it goes), from `start` on and until `end`, when what is overdue is
    dropped: a load that is not carried must not last for ever."""

    def __init__(self, rate: float | None, start: float, end: float, writer: RecordWriter) -> None:
        self._rate, self._start, self._end = rate, start, end
        self._writer = writer
        self._row = 0
        self._values = pa.array(np.arange(BATCH_ROWS) * 0.5)

    def step(self) -> float:
        now = time.time()
        if now >= self._end:
            return END
        if now < self._start:
            return self._start - now
        if self._rate is None:
            self._emit(np.full(BATCH_ROWS, round(now * _US)))
            return MORE
        n = min(BATCH_ROWS, int((now - self._start) * self._rate) - self._row)
        step = min(BATCH_ROWS, max(1, int(self._rate / 1000)))  # a millisecond's rows, or one that is due later
        if n < step:
            return max(1e-6, self._start + (self._row + step) / self._rate - now)
        due = round(self._start * _US) + (np.arange(self._row, self._row + n) * (_US / self._rate)).astype(np.int64)
        self._emit(due)
        return MORE

    def _emit(self, due: Counts) -> None:
        n = len(due)
        numbers = np.arange(self._row, self._row + n)
        self._row += n
        columns = [pa.array(due), pa.array(numbers), self._values.slice(0, n)]
        self._writer.emit(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    def end(self) -> None:
        self._writer.finish()

    def on_backpressure(self, begins: bool) -> None: ...

    def close(self) -> None: ...


def _fail(reason: str) -> None:
    raise HeadgateError(reason)


class _Producer:
    """`writers` tasks, each with a partition of `gates` subpartitions, behind one connection."""

    def __init__(self, config: Config, sock: socket.socket, writers: int, gates: int) -> None:
        self._config = config
        self._gates = gates
        self._network = NetworkThread("lab")
        self._pool = _memory(config)
        self._budget = PendingBudget()
        self._errors: list[HeadgateError] = []
        self._mailboxes = [Mailbox() for _ in range(writers)]
        self._partitions = [self._partition(number, mailbox) for number, mailbox in enumerate(self._mailboxes)]
        tune(sock)
        self._link = ProducerEnd(self._network, sock, 1, self._open_view, self._lost)

    def _partition(self, number: int, mailbox: Mailbox) -> ResultPartition:
        config, gates = self._config, self._gates
        pool = self._pool.create_local_pool(
            f"output {number}",
            required=gates + 1,
            maximum=gates * config.buffers_per_channel + config.floating_buffers_per_gate,
            subpartitions=gates,
            max_per_subpartition=config.max_buffers_per_channel,
            max_overdraft=config.max_overdraft_buffers_per_gate,
        )
        name, cap = f"output {number}", config.max_buffers_per_channel
        return ResultPartition(name, gates, pool, cap, threading.Lock, mailbox.wake, mailbox.wake)

    def _open_view(self, request: PartitionRequest, notify: Callable[[], None]) -> SubpartitionView:
        subpartition = self._partitions[request.producer].subpartitions[request.subpartition]
        subpartition.attach(notify)
        return subpartition

    def _lost(self, reason: str) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(lambda: _fail(f"the data link broke: {reason}"))

    def run(self, rate: float | None, seconds: float) -> None:
        """Send for so many seconds, `rate` rows/s in all; returns when all was taken."""
        start = time.time() + 0.2
        share = None if rate is None else rate / len(self._partitions)
        self._network.start()
        self._network.post(self._link.start)
        threads = [
            threading.Thread(
                target=self._task(number, share, start, start + seconds).run, name=f"headgate-lab-{number}"
            )
            for number in range(len(self._partitions))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            while not self._errors and not all(partition.is_consumed for partition in self._partitions):
                self._mailboxes[0].wait(0.01)
        finally:
            self._network.post(self._link.close)
            self._network.stop(TIMEOUT)
        if self._errors:
            raise self._errors[0]

    def _task(self, number: int, rate: float | None, start: float, end: float) -> Task:
        config, mailbox = self._config, self._mailboxes[number]
        writer = RecordWriter(
            self._partitions[number],
            Shuffle(self._gates, seed=number),
            BatchCodec(SCHEMA),
            self._budget,
            message_size=config.message_size,
            buffer_timeout=config.buffer_timeout,
            watermark_interval=config.watermark_interval,
            clock=time.monotonic,
            wait_within_record=lambda writer: task.wait_within_record(writer),
        )
        head = _PacedHead(rate, start, end, writer)
        task = Task(f"writer {number}", head, [], [writer], mailbox, mailbox.wake, self._done)
        task.begin()
        return task

    def _done(self, task: Task, error: HeadgateError | None) -> None:
        if error is not None:
            self._errors.append(error)


class _Latencies(Operator):
    """Counts rows and how late they are; those due within `warm_up` seconds from the first are not counted."""

    def __init__(self, warm_up: float) -> None:
        super().__init__()
        self._warm_up = warm_up
        self._from: int | None = None
        self.rows = 0
        self.batches = 0
        self.last = 0.0
        self.counts: Counts = np.zeros(BUCKETS, dtype=np.int64)

    @property
    def began(self) -> float:
        return 0.0 if self._from is None else self._from / _US

    def process(self, batch: pa.RecordBatch) -> None:
        now = time.time()
        due = batch.column("due").to_numpy()
        if self._from is None:
            self._from = int(due.min()) + round(self._warm_up * _US)
        counted = due[due >= self._from]
        self.batches += 1
        if len(counted):
            self.rows += len(counted)
            self.last = now
            self.counts += np.bincount(buckets(now * _US - counted), minlength=BUCKETS)


def consume(config: Config, sock: socket.socket, writers: int, gates: int, warm_up: float) -> dict[str, Any]:
    """Take all that comes on this socket, over writers x gates channels; what `_Latencies` counted."""
    tune(sock)
    network, memory, mailbox = NetworkThread("lab"), _memory(config), Mailbox()
    errors: list[HeadgateError] = []
    link = ConsumerEnd(network, 0, config.segment_size, lambda reason: mailbox.put(lambda: _fail(reason)))
    inputs = [_gate(config, memory, mailbox, link, gate, writers) for gate in range(gates)]
    counter = _Latencies(warm_up)
    counter.output = joined([])
    entry = ToOperator(counter, OperatorContext("lab", "count", 0, 1))
    barriers = TaskBarriers("union", inputs, [], lambda part: None)
    task_input = TaskInput(inputs, [BatchCodec(SCHEMA)] * gates, config.message_size, barriers)
    head = InputHead(task_input, entry)

    def done(task: Task, error: HeadgateError | None) -> None:
        errors.extend([] if error is None else [error])

    task = Task("union", head, [entry], [], mailbox, mailbox.wake, done)
    network.start()
    network.post(lambda: link.established(sock))
    try:
        task.begin()
        task.run()
        for gate in inputs:
            gate.release()
    finally:
        network.post(link.close)
        network.stop(TIMEOUT)
    if errors:
        raise errors[0]
    seconds = counter.last - counter.began
    cells = np.flatnonzero(counter.counts)
    return {
        "rows": counter.rows,
        "seconds": seconds,
        "batches": counter.batches,
        "cells": cells.tolist(),
        "late": counter.counts[cells].tolist(),
        "buffers": sum(getattr(channel, "buffers_in", 0) for gate in inputs for channel in gate.channels),
    }


def _gate(
    config: Config, memory: NetworkBufferPool, mailbox: Mailbox, link: ConsumerEnd, number: int, writers: int
) -> InputGate:
    gate = InputGate(mailbox.wake)
    owner = f"gate {number}"
    floating = memory.create_local_pool(owner, required=1, maximum=config.floating_buffers_per_gate)
    exclusive = ExclusiveBuffers(memory, owner)
    count = config.buffers_per_channel
    buffers_of = partial(BufferManager, exclusive, count, floating, writers, lock_factory=threading.Lock)
    channels = []
    for writer in range(writers):
        address = (0, writer, number)
        channel = RemoteInputChannel(writer, address, buffers_of, gate.notify, gate.notify_priority, link)
        link.request(channel)
        channels.append(channel)
    gate.channels = channels
    return gate


def _memory(config: Config) -> NetworkBufferPool:
    return NetworkBufferPool(config.network_memory // config.segment_size, config.segment_size, threading.Lock)


class _Process:
    """Answers `listen`, then `result`, in the producer's process; `consume` in the consumer's."""

    def __init__(self) -> None:
        self._sending = threading.Thread()
        self._error: Exception | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "listen":
                listener = socket.create_server(("127.0.0.1", 0))
                self._sending = threading.Thread(target=self._send, args=(request, listener))
                self._sending.start()
                return {"port": listener.getsockname()[1]}
            case "consume":
                sock = socket.create_connection(("127.0.0.1", request["port"]), TIMEOUT)
                config = Config(**request["config"])
                return consume(config, sock, request["writers"], request["gates"], request["warm_up"])
            case _:
                self._sending.join(TIMEOUT)
                if self._error is not None:
                    raise self._error
                return {}

    def _send(self, request: dict[str, Any], listener: socket.socket) -> None:
        try:
            with listener:
                listener.settimeout(TIMEOUT)
                sock, _ = listener.accept()
            producer = _Producer(Config(**request["config"]), sock, request["writers"], request["gates"])
            producer.run(request["rate"], request["seconds"])
        except Exception as error:
            self._error = error


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    pa.set_cpu_count(1)
    with own_cores(int(sys.argv[1]), 2):
        serve(_Process().answer)
