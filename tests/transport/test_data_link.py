"""Two network threads and a real connection: rows from a writer to a task's input, and every way in which it breaks."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.config import Config, FlowControl
from headgate.errors import ExchangeError, NetworkMemoryFull, PartitionNotFound
from headgate.exchange.gate import InputGate
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import Rebalance
from headgate.memory.buffer import recycle_all
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.decoders import RequestDecoder
from headgate.protocol.handshake import DATA_LINK, Credentials
from headgate.protocol.messages import (
    DATA_BUFFER,
    AddCredit,
    ErrorResponse,
    PartitionRequest,
    encode,
    encode_buffer_response,
)
from headgate.protocol.sender import SubpartitionView
from headgate.records.arrow import BatchCodec
from headgate.records.elements import MAX_TIME, WatermarkElement
from headgate.records.events import EndOfData, EndOfPartition, encode_event
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.exchange_parts import ExchangeParts, GateChannels
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.mailbox import Mailbox
from headgate.transport.data_link import ConsumerEnd, ProducerEnd, producer_end
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial, Server, listen
from tests.exchange.link import buffers_in, write_bytes
from tests.transport.conftest import OF_TASKMANAGER, PATIENCE, PLAIN, MakeNetwork, on, wait_for_free_turn

SCHEMA = pa.schema({"n": pa.int64()})


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + count), pa.int64())], schema=SCHEMA)


class Producer:
    """A writer over `channels` subpartitions, and the end of the link that sends them."""

    def __init__(
        self,
        network: NetworkThread,
        wake: Callable[[], None],
        *,
        channels: int,
        segment: int,
        cap: int,
        flow_control: FlowControl,
        credentials: Credentials,
        **options: Any,
    ) -> None:
        self.network = network
        self.flow_control = flow_control
        self.memory = NetworkBufferPool(channels + cap + 1, segment, threading.Lock)
        config = Config(
            buffers_per_channel=1,
            floating_buffers_per_gate=1 + cap,
            max_buffers_per_channel=cap,
            message_size=200,
            buffer_timeout=0.0,
            watermark_interval=0.0,
            **options,
        )
        parts = ExchangeParts(config, self.memory)
        self.partition = parts.partition("out", channels, wake)
        self.pool = self.partition.pool
        self.writer = parts.writer(
            self.partition,
            Rebalance(channels, 0),
            BatchCodec(SCHEMA),
            PendingBudget(),
            wait_within_record=lambda writer: None,
        )
        self.not_yet = 0  # requests for which there is nothing yet
        self.lost: list[str] = []
        self.ends: queue.SimpleQueue[ProducerEnd] = queue.SimpleQueue()
        self.server = Server(network, listen("127.0.0.1", None), credentials, DATA_LINK, self._accepted)
        self.server.start()

    def _accepted(self, sock: LinkSocket, peer: int) -> None:
        end = producer_end(
            self.network,
            sock,
            peer=peer,
            open_view=self._open_view,
            lost=self.lost.append,
            flow_control=self.flow_control,
        )
        end.start()
        self.ends.put(end)

    def _open_view(self, request: PartitionRequest, listener: Callable[[], None]) -> SubpartitionView:
        if self.not_yet:
            self.not_yet -= 1
            raise PartitionNotFound("there is no partition here yet")
        if request.subpartition >= len(self.partition.subpartitions):
            raise ExchangeError(f"there is no subpartition {request.subpartition} here")
        subpartition = self.partition.subpartition(request.subpartition)
        subpartition.attach(listener)
        return subpartition

    def close(self) -> None:
        on(self.network, self.server.close)
        while not self.ends.empty():
            on(self.network, self.ends.get().close)
        self.writer.close()
        self.partition.release()
        self.pool.destroy()
        self.memory.validate()
        assert self.memory.holders() == {}
        self.memory.close()


class Consumer:
    """A gate of `channels` remote channels, and the end of the link that receives for them."""

    def __init__(
        self,
        network: NetworkThread,
        wake: Callable[[], None],
        *,
        channels: list[int],
        segment: int,
        exclusive: int,
        flow_control: FlowControl,
        room: int,
    ) -> None:
        self.network = network
        self.flow_control = flow_control
        self.memory = NetworkBufferPool(len(channels) * exclusive + room, segment, threading.Lock)
        self.lost: list[str] = []
        self.lost_once = threading.Event()
        self.end = ConsumerEnd(network, 0, segment_size=segment, lost=self._on_lost, flow_control=flow_control)
        self.gate = InputGate(wake)
        config = Config(buffers_per_channel=exclusive, floating_buffers_per_gate=2, flow_control=flow_control)
        self.made = GateChannels(ExchangeParts(config, self.memory), self.gate, "gate", len(channels))
        [self.floating] = self.made.pools
        self.channels = [self.made.add_remote((0, 0, subpartition), self.end) for subpartition in channels]
        for channel in self.channels:
            self.end.request(channel)
        barriers = TaskBarriers("consumer", [self.gate], [], lambda part: None)
        self.input = TaskInput([self.gate], [BatchCodec(SCHEMA)], 1000, barriers)

    def _on_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.lost_once.set()

    def dial(self, port: int, credentials: Credentials) -> None:
        dial = Dial(
            self.network,
            ("127.0.0.1", port),
            credentials=credentials,
            kind=DATA_LINK,
            peer=1,
            established=self.end.established,
            failed=self.end.fail,
        )
        self.network.post(dial.start)

    def close(self) -> None:
        on(self.network, self.end.close)
        self.gate.release()
        on(self.network, lambda: None)
        self.floating.destroy()
        self.memory.validate()
        assert self.memory.holders() == {}
        self.memory.close()


class Pair:
    """Both ends; the test's own thread is the task of either."""

    def __init__(
        self,
        network_of: MakeNetwork,
        *,
        channels: int,
        wanted: list[int],
        segment: int,
        exclusive: int,
        cap: int,
        flow_control: FlowControl,
        room: int | None,
        credentials: Credentials,
        **options: Any,
    ) -> None:
        self.credentials = credentials
        self.mailbox = Mailbox()
        network = network_of("producer")
        self.producer = Producer(
            network,
            self.mailbox.wake,
            channels=channels,
            segment=segment,
            cap=cap,
            flow_control=flow_control,
            credentials=credentials,
            **options,
        )
        self.consumer = Consumer(
            network_of("consumer"),
            self.mailbox.wake,
            channels=wanted,
            segment=segment,
            exclusive=exclusive,
            flow_control=flow_control,
            room=room if room is not None else 1 << 15 if flow_control is FlowControl.UNBOUNDED else 2,
        )
        self.values: list[int] = []
        self.watermarks: list[int] = []

    def connect(self) -> ProducerEnd:
        self.consumer.dial(self.producer.server.port, self.credentials)
        return self.producer.ends.get(timeout=PATIENCE)

    def write(self) -> bool:
        """Whether the writer may take a batch."""
        return self.producer.writer.is_available or self.producer.writer.drain()

    def read(self) -> bool:
        element = self.consumer.input.next()
        if isinstance(element, pa.RecordBatch):
            self.values += element.column(0).to_pylist()
        elif isinstance(element, WatermarkElement):
            self.watermarks.append(element.time)
        return element is not None or self.consumer.input.catch_up()

    def read_on(self) -> None:
        """Until something is raised."""
        while True:
            if not self.read():
                self.wait()

    def wait(self) -> None:
        assert self.mailbox.wait(PATIENCE), "stuck: no task is woken"

    def run_to_the_end(self, batches: list[pa.RecordBatch], *, rests: bool = False) -> None:
        """Send the batches and the end, and read everything.

        With `rests`, the task sends the data itself: half of the batches while the network thread waits, half at any
        time.
        """
        left, ended = list(batches), False
        while not self.consumer.input.is_finished:
            moved = self.read()
            if left and self.write():
                self.producer.writer.emit(left.pop(0))
                if rests:
                    if len(left) % 2:
                        wait_for_free_turn(self.producer.network)
                    self.producer.partition.writer_rests = True
                    self.producer.writer.flush()
                if not left:
                    self.producer.writer.finish()
                moved = True
            elif not self.producer.writer.is_available:
                self.producer.writer.drain()
            elif self.producer.writer.is_finished and self.producer.partition.is_settled and not ended:
                self.producer.writer.write_event(EndOfPartition())
                moved = ended = True
            if not moved and not self.consumer.input.is_finished:
                self.wait()

    def read_values(self, count: int) -> None:
        while len(self.values) < count:
            if not self.read():
                self.producer.writer.drain()
                self.wait()

    def leave(self) -> None:
        self.consumer.gate.release()
        deadline = time.monotonic() + PATIENCE
        while not self.producer.partition.is_consumed:
            on(self.producer.network, lambda: None)
            assert time.monotonic() < deadline, "the leave did not arrive"

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()


MakePair = Callable[..., Pair]


@pytest.fixture(params=[PLAIN, OF_TASKMANAGER], ids=["plain", "tls"])
def credentials(request: pytest.FixtureRequest) -> Credentials:
    """With which both ends of a link begin."""
    found: Credentials = request.param
    return found


@pytest.fixture
def make(network_of: MakeNetwork, credentials: Credentials) -> Iterator[MakePair]:
    pairs: list[Pair] = []

    def make_pair(
        channels: int = 1,
        *,
        wanted: list[int] | None = None,
        segment: int = 64,
        exclusive: int = 1,
        cap: int = 3,
        flow_control: FlowControl = FlowControl.CREDIT,
        room: int | None = None,
        **options: Any,
    ) -> Pair:
        wanted = list(range(channels)) if wanted is None else wanted
        pair = Pair(
            network_of,
            channels=channels,
            wanted=wanted,
            segment=segment,
            exclusive=exclusive,
            cap=cap,
            flow_control=flow_control,
            room=room,
            credentials=credentials,
            **options,
        )
        pairs.append(pair)
        return pairs[-1]

    yield make_pair
    for pair in pairs:
        pair.close()


@pytest.mark.turns(2)
@pytest.mark.parametrize("flow_control", FlowControl)
@pytest.mark.parametrize(
    ("channels", "segment", "exclusive"), [(1, 32, 1), (1, 512, 2), (3, 64, 1), (3, 512, 3), (8, 128, 2)]
)
def test_all_rows_cross_in_order_with_few_segments(
    make: MakePair, channels: int, segment: int, exclusive: int, flow_control: FlowControl
) -> None:
    pair = make(channels, segment=segment, exclusive=exclusive, flow_control=flow_control)
    pair.connect()
    pair.run_to_the_end([rows(100 * turn, 100) for turn in range(2 * channels)])
    assert sorted(pair.values) == list(range(200 * channels))
    assert pair.watermarks[-1:] == [MAX_TIME]
    for channel in range(channels):
        own = [value for value in pair.values if value // 100 % channels == channel]
        assert own == sorted(own)
    pair.leave()
    assert pair.consumer.lost == pair.producer.lost == []


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(("channels", "segment", "exclusive"), [(1, 512, 2), (3, 4096, 1), (4, 512, 0)])
def test_a_finished_partition_is_sent_from_its_file_by_the_kernel(
    make: MakePair,
    *,
    credentials: Credentials,
    tmp_path: Path,
    channels: int,
    segment: int,
    exclusive: int,
    compress: bool,
) -> None:
    """Every byte of data goes from the file to the socket without having been in this process, unless it is encrypted
    here."""
    options = {"execution_mode": "batch", "spill_dir": str(tmp_path), "batch_shuffle_compression": compress}
    pair = make(channels, segment=segment, exclusive=exclusive, **options)
    writer, partition = pair.producer.writer, pair.producer.partition
    for turn in range(100 * channels):
        writer.emit(rows(100 * turn, 100))
        while not writer.is_available:
            writer.drain()
    writer.finish()
    writer.write_event(EndOfPartition())
    assert pair.producer.pool.in_use == 0
    assert partition._file is not None
    written = partition._file.size
    assert (written < partition.bytes_out) if compress else (written == partition.bytes_out)
    end = pair.connect()
    while not pair.consumer.input.is_finished:
        if not pair.read() and not pair.consumer.input.is_finished:
            pair.wait()
    assert sorted(pair.values) == list(range(10_000 * channels))
    assert end.bytes_sent_by_sendfile == (written if credentials.identity is None else 0)
    pair.leave()
    assert pair.consumer.lost == pair.producer.lost == []


def threads_that_send(end: ProducerEnd) -> set[str]:
    """Return a set to which the names of the threads come that send on this link from now on."""
    threads, send = set[str](), end.on_marked

    def on_marked() -> None:
        threads.add(threading.current_thread().name)
        send()

    end.on_marked = on_marked  # type: ignore[method-assign]
    return threads


@pytest.mark.parametrize("flow_control", FlowControl)
@pytest.mark.parametrize("size", [1, 40, 1000])
def test_a_task_that_rests_loses_and_overtakes_nothing(make: MakePair, flow_control: FlowControl, size: int) -> None:
    pair = make(3, segment=512, flow_control=flow_control)
    called = threads_that_send(pair.connect())
    pair.producer.writer.emit(rows(0, size))
    pair.producer.writer.flush()
    pair.read_values(size)
    pair.run_to_the_end([rows(size * turn, size) for turn in range(1, 50)], rests=True)
    assert "MainThread" in called
    assert sorted(pair.values) == list(range(50 * size))
    for channel in range(3):
        own = [value for value in pair.values if value // size % 3 == channel]
        assert own == sorted(own)
    pair.leave()
    assert pair.consumer.lost == pair.producer.lost == []


@pytest.mark.parametrize(("rests", "threads"), [(True, {"MainThread"}), (False, {"headgate-producer"})])
def test_a_task_that_rests_sends_on_its_own_thread(make: MakePair, rests: bool, threads: set[str]) -> None:
    """A busy task leaves it to the network thread, which sends while the task computes."""
    pair = make(segment=512, exclusive=4)
    end = pair.connect()
    pair.producer.writer.emit(rows(0, 1))
    pair.producer.writer.flush()
    pair.read_values(1)
    on(pair.consumer.network, lambda: None)  # its credit is sent
    wait_for_free_turn(pair.producer.network)
    called = threads_that_send(end)
    pair.producer.writer._buffer_timeout, pair.producer.writer._prompt = -1, None
    pair.producer.writer.emit(rows(1, 1))
    pair.producer.partition.writer_rests = rests
    pair.producer.writer.flush()
    pair.read_values(2)
    assert called == threads


def test_a_thousand_channels_share_a_connection(make: MakePair) -> None:
    """Each with one buffer of its own, and a batch of its own."""
    channels = 1000
    pair = make(channels, segment=512, exclusive=1)
    pair.connect()
    pair.producer.writer._buffer_timeout = -1  # a flush after every batch looks at all channels
    pair.run_to_the_end([rows(10 * turn, 10) for turn in range(channels)])
    assert sorted(pair.values) == list(range(10 * channels))
    assert pair.watermarks[-1:] == [MAX_TIME]
    pair.leave()
    assert pair.consumer.lost == pair.producer.lost == []


def test_rows_written_before_the_connection_is_made_wait_for_it(make: MakePair) -> None:
    pair = make(segment=512)
    pair.producer.writer.emit(rows(0, 10))
    pair.connect()
    pair.read_values(10)
    assert pair.values == list(range(10))


def test_a_stalled_consumer_stops_the_producer_and_only_it(make: MakePair) -> None:
    """Channel 0's buffers are taken and kept; channel 1 goes on over the same connection."""
    pair = make(2, segment=128, exclusive=2)
    pair.connect()
    writer, gate = pair.producer.writer, pair.consumer.gate
    kept, seen = [], 0
    writer.emit(rows(0, 2000))
    while seen < 50:
        if writer._due.has(1):
            writer.drain()
        else:
            writer._selector._next = 1  # type: ignore[attr-defined]
            writer.emit(rows(0, 20))
        polled = gate.poll()
        if polled is None:
            pair.wait()
        elif polled[0] == 0:
            kept += buffers_in(polled)
        else:
            seen += 1
            recycle_all(buffers_in(polled))
    assert writer._due.has(0)
    assert not writer.is_available
    assert 1 <= len(kept) <= 2 + 2, "no more than its exclusive and all floating buffers"
    recycle_all(kept)


@pytest.mark.parametrize(("segment", "count"), [(64, 1000), (32 << 10, 200)])
def test_what_credit_covers_crosses_without_another_word(make: MakePair, segment: int, count: int) -> None:
    """More buffers than a few turns of the network thread send; then more bytes than the sockets hold while no thread
    reads them."""
    pair = make(segment=segment, exclusive=count, cap=count)
    end = pair.connect()
    go_on = threading.Event()
    pair.consumer.network.post(lambda: bool(go_on.wait(3 * PATIENCE)))
    assert write_bytes(pair.producer.partition, 0, bytes(count * segment)) == count * segment
    deadline = time.monotonic() + PATIENCE
    while segment > 64 and not on(pair.producer.network, lambda: end._wants_write):
        assert time.monotonic() < deadline, "the sockets take everything"
    go_on.set()
    while pair.consumer.channels[0].queue_length < count:
        on(pair.consumer.network, lambda: None)
        assert time.monotonic() < deadline, f"stuck at {pair.consumer.channels[0].queue_length} of {count}"


def test_a_subpartition_that_is_not_there_fails_its_channel_alone(make: MakePair) -> None:
    pair = make(1, wanted=[0, 7], segment=512)
    pair.connect()
    pair.producer.writer.emit(rows(0, 10))
    with pytest.raises(ExchangeError, match="there is no subpartition 7 here"):
        pair.read_on()
    pair.read_values(10)
    assert pair.consumer.lost == []


def test_one_channel_may_leave_and_the_others_continue(make: MakePair) -> None:
    pair = make(2, segment=64)
    pair.connect()
    for turn in range(4):
        pair.producer.writer.emit(rows(100 * turn, 50))
    pair.read_values(1)
    pair.consumer.channels[0].release()
    own = [value for value in range(400) if value // 100 % 2 == 1 and value % 100 < 50]
    while [value for value in pair.values if value // 100 % 2 == 1] != own:
        if not pair.read():
            pair.producer.writer.drain()
            pair.wait()
    while not pair.producer.writer.drain():
        pair.wait()
    assert pair.producer.partition.subpartition(0).is_released
    assert pair.consumer.lost == pair.producer.lost == []


@pytest.mark.parametrize("flow_control", FlowControl)
def test_a_connection_cut_by_the_producer_is_reported_once_and_all_memory_is_recycled(
    make: MakePair, flow_control: FlowControl
) -> None:
    pair = make(2, segment=64, flow_control=flow_control)
    end = pair.connect()
    pair.producer.writer.emit(rows(0, 100))
    pair.read_values(1)
    on(pair.producer.network, end.close)
    deadline = time.monotonic() + PATIENCE
    while not pair.consumer.lost_once.wait(0.01):
        pair.read()  # without credit, a consumer that has no buffer does not look at the socket
        assert time.monotonic() < deadline
    on(pair.consumer.network, lambda: None)
    assert len(pair.consumer.lost) == 1
    assert pair.producer.lost == []
    assert pair.producer.partition.is_consumed, "no consumer will request the rest"


@pytest.mark.parametrize("flow_control", FlowControl)
def test_a_connection_cut_by_the_consumer_is_reported_once_and_frees_the_producer(
    make: MakePair, flow_control: FlowControl
) -> None:
    pair = make(2, segment=64, flow_control=flow_control)
    pair.connect()
    pair.producer.writer.emit(rows(0, 100))
    pair.read_values(1)
    on(pair.consumer.network, pair.consumer.end.close)
    deadline = time.monotonic() + PATIENCE
    while not pair.producer.lost:
        on(pair.producer.network, lambda: None)
        assert time.monotonic() < deadline
    assert len(pair.producer.lost) == 1
    assert pair.consumer.lost == []
    assert pair.producer.partition.is_consumed
    while not pair.producer.writer.drain():
        pair.wait()


@pytest.mark.parametrize("flow_control", FlowControl)
def test_after_a_proper_leave_the_end_of_the_connection_is_no_loss(make: MakePair, flow_control: FlowControl) -> None:
    pair = make(segment=512, flow_control=flow_control)
    end = pair.connect()
    pair.run_to_the_end([rows(0, 10)])
    pair.leave()
    on(pair.consumer.network, pair.consumer.end.close)
    deadline = time.monotonic() + PATIENCE
    while end._open:
        on(pair.producer.network, lambda: None)
        assert time.monotonic() < deadline
    assert pair.consumer.lost == pair.producer.lost == []


@pytest.mark.parametrize("flow_control", FlowControl)
def test_what_is_not_there_yet_is_asked_for_again(make: MakePair, flow_control: FlowControl) -> None:
    pair = make(segment=512, flow_control=flow_control)
    pair.producer.not_yet = 2
    pair.connect()
    pair.run_to_the_end([rows(0, 10)])
    assert pair.values == list(range(10))
    assert pair.producer.not_yet == 0
    pair.leave()


@pytest.mark.usefixtures("five_tries")
def test_a_peer_that_cannot_be_reached_is_a_loss(make: MakePair) -> None:
    pair = make()
    with listen("127.0.0.1", None) as closed:
        port = closed.getsockname()[1]
    pair.consumer.dial(port, pair.credentials)
    assert pair.consumer.lost_once.wait(PATIENCE)
    [lost] = pair.consumer.lost
    assert lost.startswith(f"127.0.0.1:{port}: [Errno 111] Connection refused")


def test_a_consumer_that_breaks_the_protocol_gets_the_error_and_is_closed(make: MakePair) -> None:
    pair = make()
    came: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
    address = ("127.0.0.1", pair.producer.server.port)
    network = pair.consumer.network
    dial = Dial(
        network,
        address,
        credentials=pair.credentials,
        kind=DATA_LINK,
        peer=1,
        established=came.put,
        failed=came.put,
    )
    network.post(dial.start)
    sock = came.get(timeout=PATIENCE)
    assert not isinstance(sock, str)
    sock.send(b"\0\0\0\x09GARBAGE!!")
    said = b""
    while True:
        try:
            part = sock.recv(1000)
        except BlockingIOError:
            on(network, lambda: None)
            continue
        if not part:
            break
        said += part
    sock.close()
    assert said == encode(ErrorResponse("stream corrupted: magic number 0x47415242 instead of 0xbadc0ffe"))
    on(pair.producer.network, lambda: None)
    assert pair.producer.lost == ["stream corrupted: magic number 0x47415242 instead of 0xbadc0ffe"]


def test_a_producer_that_breaks_the_protocol_is_lost_with_the_reason(make: MakePair) -> None:
    pair = make()
    end = pair.connect()
    on(pair.producer.network, lambda: end._socket.send(encode(ErrorResponse("out of order\x1b[2J"))))
    assert pair.consumer.lost_once.wait(PATIENCE)
    assert pair.consumer.lost == [r"the producer closed the connection: out of order\x1b[2J"]


def test_both_ends_count_what_crossed(make: MakePair) -> None:
    pair = make(segment=512)
    end = pair.connect()
    pair.run_to_the_end([rows(0, 500)])
    events = len(encode_event(EndOfData())) + len(encode_event(EndOfPartition()))
    payload = pair.producer.partition.bytes_out + events
    assert end.bytes_sent == payload
    assert pair.consumer.end.bytes_received > payload


def test_without_credit_a_socket_is_not_read_while_the_input_has_no_buffer(make: MakePair) -> None:
    """Channel 0's rows wait for a task that takes none; channel 1's, behind them in the socket, with them."""
    pair = make(2, segment=128, flow_control=FlowControl.TCP)
    pair.connect()
    writer, gate, network = pair.producer.writer, pair.consumer.gate, pair.consumer.network
    writer.emit(rows(0, 2000))
    receiver = pair.consumer.end._receiver
    deadline = time.monotonic() + PATIENCE
    while not on(network, lambda: receiver.is_stopped):
        writer.drain()
        assert time.monotonic() < deadline, "the input's buffers never run out"
    read = pair.consumer.end.bytes_received
    assert on(network, lambda: receiver.is_stopped and pair.consumer.end._watched == 0)
    assert pair.consumer.end.bytes_received == read
    assert pair.consumer.floating.free == 0
    assert sum(channel.queue_length for channel in gate.channels) == pair.consumer.floating.in_use
    pair.read_values(2000)
    assert pair.values == list(range(2000))


def test_a_full_memory_without_limit_ends_the_link_and_not_its_reading(
    make: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make(1, segment=128, flow_control=FlowControl.UNBOUNDED, room=20)
    errors: list[Exception] = []
    monkeypatch.setattr(pair.consumer.network, "_on_error", errors.append)
    pair.connect()
    pair.producer.writer.emit(rows(0, 2000))
    deadline = time.monotonic() + PATIENCE
    while not errors:
        pair.producer.writer.drain()
        on(pair.consumer.network, lambda: None)
        assert time.monotonic() < deadline, "the memory is never full"
    [error] = errors
    assert isinstance(error, NetworkMemoryFull)
    assert sum(channel.reader_stops for channel in pair.consumer.channels) == 0
    assert pair.consumer.lost == []


def test_without_credit_the_death_of_a_peer_is_detected_at_the_next_read(make: MakePair) -> None:
    pair = make(1, segment=128, flow_control=FlowControl.TCP)
    end = pair.connect()
    pair.producer.writer.emit(rows(0, 2000))
    network, receiver = pair.consumer.network, pair.consumer.end._receiver
    deadline = time.monotonic() + PATIENCE
    while not on(network, lambda: receiver.is_stopped):
        pair.producer.writer.drain()
        assert time.monotonic() < deadline, "the input's buffers never run out"
    on(pair.producer.network, end.close)
    while not pair.consumer.lost:
        pair.read()
        on(network, lambda: None)
        assert time.monotonic() < deadline, "the loss was not seen"
    assert len(pair.consumer.lost) == 1


def connected(buffer: int) -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; what the first sends is held in kernel buffers of about so many bytes."""
    with listen("127.0.0.1", None) as server:
        server.setblocking(True)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        one = socket.create_connection(server.getsockname())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        one.setblocking(False)
        other, _ = server.accept()
    other.settimeout(PATIENCE)
    return one, other


def test_credit_for_a_producer_that_does_not_read_gathers(network_of: MakeNetwork) -> None:
    """It sends frames and reads nothing; when it reads, all credit is there, in few messages."""
    channels, turns = 50, 100
    mailbox = Mailbox()
    consumer = Consumer(
        network_of("consumer"),
        mailbox.wake,
        channels=list(range(channels)),
        segment=64,
        exclusive=1,
        flow_control=FlowControl.CREDIT,
        room=2,
    )
    sock, producer = connected(4096)
    with producer:
        on(consumer.network, lambda: consumer.end.established(sock))
        for turn in range(turns):
            frames = [encode_buffer_response(number, turn, 0, DATA_BUFFER, 1) + b"x" for number in range(channels)]
            producer.sendall(b"".join(frames))
            taken = 0
            while taken < channels:
                polled = consumer.gate.poll()
                if polled is None:
                    assert mailbox.wait(PATIENCE), "stuck: no task is woken"
                else:
                    recycle_all(buffers_in(polled))
                    taken += 1
        unsent = on(consumer.network, lambda: len(consumer.end._outgoing))
        assert 0 < unsent <= channels * len(encode(AddCredit(1, 0))), "one message of each channel at most"
        decoder, granted = RequestDecoder(), []
        while sum(granted) < channels * turns:
            said = decoder.feed(producer.recv(1 << 16))
            granted += [message.credit for message in said if isinstance(message, AddCredit)]
        assert len(granted) < channels * turns / 2
        consumer.close()
    assert consumer.lost == []
