"""Main module of a process that exchanges rows with itself over a socket while others send it damaged frames.

One network thread serves all: the healthy pair, the connections that come in (to a partition of their own), and those
that it makes for each peer that requests it. Commands come on stdin, a line each: a port is dialled, and what comes
from there is read to the end; an empty line is the end. Answers are JSON lines.
"""

from __future__ import annotations

import itertools
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pyarrow as pa

from headgate.config import Config
from headgate.errors import ExchangeError, HeadgateError
from headgate.exchange.blocking import Subpartition
from headgate.exchange.gate import InputGate
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import Forward
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.handshake import DATA_LINK, Credentials
from headgate.protocol.messages import PartitionRequest
from headgate.protocol.sender import SubpartitionView
from headgate.records.arrow import BatchCodec
from headgate.records.events import EndOfPartition
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.exchange_parts import ExchangeParts, GateChannels
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.transport.data_link import ConsumerEnd, ProducerEnd
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial, Server, listen

CREDENTIALS = Credentials(b"j" * 16, 1, b"secret")
SCHEMA = pa.schema({"n": pa.int64()})
SEGMENT = 256
CONFIG = Config(message_size=500, buffer_timeout=0.0, watermark_interval=0.0, max_buffers_per_channel=16)
#: Edge 0 is the healthy pair's, edge 1 the others'.
SUBPARTITIONS = 64
PATIENCE = 60.0


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + count), pa.int64())], schema=SCHEMA)


class Output:
    """One task's output: a pool, a partition and a writer."""

    def __init__(self, memory: NetworkBufferPool, name: str, channels: int) -> None:
        self.mailbox = Mailbox()
        parts = ExchangeParts(CONFIG, memory)
        self.partition = parts.partition(name, channels, self.mailbox.wake)
        self.writer = parts.writer(
            self.partition, Forward(), BatchCodec(SCHEMA), PendingBudget(), wait_within_record=lambda writer: None
        )

    def close(self) -> None:
        self.writer.close()
        self.partition.release()
        self.partition.pool.destroy()


class Input:
    """One task's input: a channel, its end of a connection, and what came of it."""

    def __init__(self, memory: NetworkBufferPool, network: NetworkThread, edge: int) -> None:
        self.network = network
        self.mailbox = Mailbox()
        self.lost: list[str] = []
        self.gate = InputGate(self.mailbox.wake)
        self.end = ConsumerEnd(network, 0, segment_size=SEGMENT, lost=self._on_lost)
        self.made = GateChannels(ExchangeParts(CONFIG, memory), self.gate, "input", remote=1)
        self.end.request(self.made.add_remote((edge, 0, 0), self.end))
        barriers = TaskBarriers("task", [self.gate], [], lambda part: None)
        self.input = TaskInput([self.gate], [BatchCodec(SCHEMA)], 1000, barriers)

    def _on_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.mailbox.wake()

    def dial(self, port: int) -> None:
        dial = Dial(
            self.network,
            ("127.0.0.1", port),
            credentials=CREDENTIALS,
            kind=DATA_LINK,
            peer=1,
            established=self.end.established,
            failed=self.end.fail,
        )
        self.network.post(dial.start)

    def read_all(self) -> list[int]:
        """Up to the end, or to what made the channel fail, which is raised."""
        values: list[int] = []
        while not self.input.is_finished:
            element = self.input.next()
            if isinstance(element, pa.RecordBatch):
                values += element.column(0).to_pylist()
            elif element is None and not self.input.catch_up() and not self.input.is_finished:
                if self.lost and not self.input.has_data:
                    raise ExchangeError(self.lost[0])
                assert self.mailbox.wait(PATIENCE), "stuck: no task is woken"
        return values

    def close(self) -> None:
        self.made.release()
        on(self.network, self.end.close)


def on(network: NetworkThread, work: Callable[[], None]) -> None:
    """Run `work` on the network thread and wait for it."""
    done = threading.Event()
    network.post(work)
    network.post(done.set)
    assert done.wait(PATIENCE), "the network thread does not answer"


class Target:
    """See the module."""

    def __init__(self) -> None:
        self.memory = NetworkBufferPool(1000, SEGMENT, threading.Lock)
        self.network = NetworkThread("target")
        self.network.start()
        self.healthy = Output(self.memory, "healthy", 1)
        self.others = Output(self.memory, "others", SUBPARTITIONS)
        self.refused: list[str] = []
        self.ends: list[ProducerEnd] = []
        self.opened: list[Subpartition] = []
        self.server = Server(self.network, listen("127.0.0.1", None), CREDENTIALS, DATA_LINK, self._accepted)  # type: ignore[arg-type]
        self.server.start()
        self.input = Input(self.memory, self.network, 0)
        self.stopping = threading.Event()
        self.written = 0
        self.read: list[int] = []
        self.threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]

    def _accepted(self, sock: socket.socket, peer: int) -> None:
        self.ends.append(
            ProducerEnd(self.network, sock, peer=peer, open_view=self._open_view, lost=self.refused.append)
        )
        self.ends[-1].start()

    def _open_view(self, request: PartitionRequest, listener: Callable[[], None]) -> SubpartitionView:
        if request.edge > 1:
            raise ExchangeError("there is no such edge here")
        subpartitions = (self.others if request.edge else self.healthy).partition.subpartitions
        if request.subpartition >= len(subpartitions):
            raise ExchangeError("there is no such subpartition here")
        subpartition = subpartitions[request.subpartition]
        subpartition.attach(listener, sends_empty=request.credit == 0)
        if request.edge:
            self.opened.append(subpartition)
        return subpartition

    def _write(self) -> None:
        """The healthy writer's task: rows until it is stopped, at a pace that leaves the processor to others."""
        output = self.healthy
        for first in itertools.count(0, 50):
            if self.stopping.wait(0.001):
                break
            self._wait(output, output.writer.drain)
            output.writer.emit(rows(first, 50))
            self.written = first + 50
        output.writer.finish()
        self._wait(output, lambda: output.writer.drain() and output.partition.is_settled)
        output.writer.write_event(EndOfPartition())

    @staticmethod
    def _wait(output: Output, until: Callable[[], bool]) -> None:
        while not until():
            assert output.mailbox.wait(PATIENCE), "stuck: no task is woken"

    def _read(self) -> None:
        self.read = self.input.read_all()
        self.input.gate.release()

    def run(self) -> None:
        files = psutil.Process().num_fds()
        self.input.dial(self.server.port)
        for thread in self.threads:
            thread.start()
        self.others.writer.emit(rows(0, 100))
        for channel in range(SUBPARTITIONS):
            self.others.partition.write_event(channel, EndOfPartition())
        while not self.read and not self.written:
            time.sleep(0.001)
        say(port=self.server.port)
        for line in sys.stdin:
            if not line.strip():
                break
            say(ended=self._dial(int(line)))
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        assert self.read == list(range(self.written)), "not the rows that were written"
        self._close()
        say(rows=self.written, refused=self.refused, files=psutil.Process().num_fds() - files)

    def _dial(self, port: int) -> str:
        """Read what comes from a producer of damaged frames; returns how that ended."""
        damaged = Input(self.memory, self.network, 1)
        damaged.dial(port)
        try:
            damaged.read_all()
        except HeadgateError as error:
            return str(error)
        finally:
            damaged.close()
        return ""

    def _close(self) -> None:
        """Connections that ended let go of what they read, and all memory is back, whatever came."""
        on(self.network, self.server.close)
        assert self.opened
        assert all(subpartition.is_released for subpartition in self.opened)
        self.input.close()
        for end in self.ends:
            on(self.network, end.close)
        for output in (self.healthy, self.others):
            output.close()
        self.memory.validate()
        assert self.memory.holders() == {}, self.memory.holders()
        self.memory.close()


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    errors = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(errors)
    before = psutil.Process().num_fds()
    target = Target()
    target.run()
    target.network.stop(PATIENCE)
    sys.exit(0 if psutil.Process().num_fds() == before else "a file descriptor was left open")
