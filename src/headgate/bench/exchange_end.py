"""The two ends of an exchange, each in its own process. `conversation` drives the processes.

The ends use the runtime's own tasks, writers, partitions, network threads, credit and gates, and one real socket.
"""

from __future__ import annotations

import gc
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headgate.bench.conversation import serve
from headgate.config import Config
from headgate.errors import HeadgateError
from headgate.exchange.channels import RemoteInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import ChannelSelector
from headgate.exchange.writer import RecordWriter
from headgate.protocol.handshake import TASKMANAGER, Identity
from headgate.protocol.messages import PartitionRequest
from headgate.protocol.sender import SubpartitionView
from headgate.records.arrow import BatchCodec
from headgate.runtime.launch.cores import own_cores
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.chain import ToOperator
from headgate.runtime.task.exchange_parts import ExchangeParts, GateChannels, network_memory
from headgate.runtime.task.heads import Head, InputHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.runtime.task.task import Task
from headgate.runtime.task.task_thread import run_task
from headgate.runtime.task.time_account import Wait
from headgate.runtime.taskmanager.interpreter_settings import set_up_interpreter
from headgate.transport.data_link import ConsumerEnd, ProducerEnd, producer_end
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import tune
from headgate.transport.tls import TlsSocket, client_context, server_context

TIMEOUT = 60.0


class WriterHead:
    """The base class of heads that make batches for one writer, and never wait for input.

    A head is the first part of a task's chain.
    """

    waits_for = Wait.INPUT

    def __init__(self, writer: RecordWriter) -> None:
        self.writer = writer

    def end(self) -> None:
        self.writer.finish()

    def on_backpressure(self, begins: bool, now: float) -> None: ...

    def close(self) -> None: ...


class End:
    """One end of the exchange: a socket, a network thread and segments. It sends or receives once.

    With an `identity` the socket uses TLS.
    """

    def __init__(self, config: Config, sock: socket.socket, identity: Identity | None, server: str | None) -> None:
        tune(sock)
        self._config = config
        self._network = NetworkThread("bench")
        self._socket: LinkSocket = sock
        if identity is not None:
            context = server_context(identity) if server is None else client_context(identity)
            self._socket = _with_handshake(TlsSocket(sock, context, self._network.hold, server))
        self._parts = ExchangeParts(config, network_memory(config))
        self._budget = PendingBudget()
        self._mailboxes: list[Mailbox] = []
        self._errors: list[HeadgateError] = []

    def send(
        self,
        schema: pa.Schema,
        selectors: Sequence[ChannelSelector],
        channels: int,
        head: Callable[[RecordWriter], Head],
    ) -> None:
        """Run a task with `channels` channels for each selector, until the receiver has read all data.

        Raises a task's error.
        """
        self._mailboxes = [Mailbox() for _ in selectors]
        partitions = [
            self._parts.partition(f"output {number}", channels, mailbox.wake)
            for number, mailbox in enumerate(self._mailboxes)
        ]

        def open_view(request: PartitionRequest, notify: Callable[[], None]) -> SubpartitionView:
            subpartition = partitions[request.producer].subpartitions[request.subpartition]
            subpartition.attach(notify)
            return subpartition

        link = producer_end(
            self._network,
            self._socket,
            peer=1,
            open_view=open_view,
            lost=self._on_link_lost,
            flow_control=self._config.flow_control,
        )
        codec = BatchCodec(schema)
        tasks = [self._sender(*each, codec, head) for each in zip(partitions, selectors, self._mailboxes, strict=True)]
        threads = [
            threading.Thread(target=run_task, args=(task, self._on_task_done), name=f"headgate-bench-{task.name}")
            for task in tasks
        ]
        with self._connected(link, link.start):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            while not self._errors and not all(partition.is_consumed for partition in partitions):
                self._mailboxes[0].wait(0.01)

    def _sender(
        self,
        partition: ResultPartition,
        selector: ChannelSelector,
        mailbox: Mailbox,
        codec: BatchCodec,
        head: Callable[[RecordWriter], Head],
    ) -> Task:
        writer = self._parts.writer(
            partition, selector, codec, self._budget, lambda writer: task.wait_within_record(writer)
        )
        task = self._task(partition.name, head(writer), [], [writer], mailbox)
        return task

    def receive(
        self, schema: pa.Schema, gates: Sequence[Sequence[tuple[int, int, int]]], chain: Sequence[ToOperator]
    ) -> int:
        """Run one task until its input ends. Return the number of buffers received. Raises the task's error.

        `gates` has the addresses of each gate's channels: (edge, producer, subpartition). `chain` has the task's
        operators, the last one first.
        """
        mailbox = Mailbox()
        self._mailboxes = [mailbox]
        link = ConsumerEnd(
            self._network,
            0,
            segment_size=self._config.segment_size,
            lost=self._on_link_lost,
            flow_control=self._config.flow_control,
        )
        inputs = [InputGate(mailbox.wake) for _ in gates]
        channels: list[RemoteInputChannel] = []
        for number, (gate, addresses) in enumerate(zip(inputs, gates, strict=True)):
            gate_channels = GateChannels(self._parts, gate, f"gate {number}", len(addresses))
            channels += [gate_channels.add_remote(address, link) for address in addresses]
        for channel in channels:
            link.request(channel)
        barriers = TaskBarriers("input", inputs, [], lambda part: None)
        task_input = TaskInput(inputs, [BatchCodec(schema)] * len(inputs), self._config.message_size, barriers)
        task = self._task("input", InputHead(task_input, chain[-1]), chain, [], mailbox)
        with self._connected(link, lambda: link.established(self._socket)):
            run_task(task, self._on_task_done)
            for gate in inputs:
                gate.release()
        return sum(channel.buffers_in for channel in channels)

    def _task(
        self,
        name: str,
        head: Head,
        operators: Sequence[ToOperator],
        writers: Sequence[RecordWriter],
        mailbox: Mailbox,
    ) -> Task:
        task = Task(
            name=name,
            head=head,
            operators=operators,
            writers=writers,
            mailbox=mailbox,
            opened=mailbox.wake,
        )
        task.begin()
        return task

    @contextmanager
    def _connected(self, link: ProducerEnd | ConsumerEnd, begin: Callable[[], None]) -> Iterator[None]:
        """Run the network thread during the block. Then raise the first error of a task, if there is one."""
        self._network.start()
        self._network.post(begin)
        try:
            yield
        finally:
            self._network.post(link.close)
            self._network.stop(TIMEOUT)
        if self._errors:
            raise self._errors[0]

    def _on_link_lost(self, reason: str) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(lambda: _raise_error(f"bench: the data link to the other end broke: {reason}"))

    def _on_task_done(self, task: Task, error: HeadgateError | None) -> None:
        if error is not None:
            self._errors.append(error)


def _with_handshake(sock: TlsSocket) -> TlsSocket:
    while not sock.shake_hands():
        select.select([sock], [], [], TIMEOUT)
    return sock


def _raise_error(reason: str) -> None:
    raise HeadgateError(reason)


Send = Callable[[End, dict[str, Any]], None]
Receive = Callable[[End, dict[str, Any]], dict[str, Any]]


class _EndProcess:
    """The process of an end. A producer answers the requests `listen` and then `result`. A consumer answers
    `consume`."""

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send = send
        self._receive = receive
        self._sending = threading.Thread()
        self._error: Exception | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "listen":
                listener = socket.create_server(("127.0.0.1", 0))
                self._sending = threading.Thread(target=self._serve, args=(request, listener))
                self._sending.start()
                return {"port": listener.getsockname()[1]}
            case "consume":
                sock = socket.create_connection(("127.0.0.1", request["port"]), TIMEOUT)
                return self._receive(_open_end(request, sock, TASKMANAGER), request)
            case _:
                self._sending.join(TIMEOUT)
                if self._error is not None:
                    raise self._error
                return {}

    def _serve(self, request: dict[str, Any], listener: socket.socket) -> None:
        try:
            with listener:
                listener.settimeout(TIMEOUT)
                sock, _ = listener.accept()
            with sock:  # closed also after an error, so that the consumer does not wait for more
                self._send(_open_end(request, sock, None), request)
        except Exception as error:
            self._error = error


def _open_end(request: dict[str, Any], sock: socket.socket, server: str | None) -> End:
    """Open the end that the request describes. For TLS the request has the certificates and the key as text."""
    identity = Identity(*(part.encode() for part in request["identity"])) if "identity" in request else None
    return End(Config(**request["config"]), sock, identity, server)


def serve_end(send: Send, receive: Receive) -> None:
    """Run the process of an end: send or receive as requests ask. The program's argument is the `rank` of the end."""
    set_up_interpreter()
    gc.collect()
    gc.freeze()  # as in the process that forks TaskManagers
    with own_cores(int(sys.argv[1]), 2):
        serve(_EndProcess(send, receive).answer)
