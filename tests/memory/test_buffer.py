"""Counted buffers, and the marker protocol between the thread that fills a segment and the one that sends it."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer
from headgate.memory.buffer_builder import BufferBuilder, BufferConsumer
from headgate.memory.segment import MemorySegment


class Home:
    """Where segments come back to."""

    def __init__(self, size: int = 16) -> None:
        self.segment = MemorySegment(7, memoryview(bytearray(size)))
        self.returned: list[MemorySegment] = []

    @property
    def has_it(self) -> bool:
        assert len(self.returned) <= 1, "returned more than once"
        return self.returned == [self.segment]


@pytest.fixture
def home() -> Home:
    return Home()


def test_the_last_reference_returns_the_segment(home: Home) -> None:
    buffer = Buffer(home.segment, 2, 5, home.returned.append)
    assert buffer.retain() is buffer
    buffer.recycle()
    assert not home.has_it and not buffer.is_recycled
    buffer.recycle()
    assert home.has_it and buffer.is_recycled


def test_recycling_or_retaining_what_is_recycled_is_refused(home: Home) -> None:
    buffer = Buffer(home.segment, 2, 5, home.returned.append)
    buffer.recycle()
    with pytest.raises(ExchangeError, match=r"segment 7, bytes 2 to 7\) was recycled twice"):
        buffer.recycle()
    with pytest.raises(ExchangeError, match="retained after it had been recycled"):
        buffer.retain()
    assert home.has_it


def test_the_view_is_a_read_only_window_without_copy(home: Home) -> None:
    buffer = Buffer(home.segment, 2, 5, home.returned.append)
    view = buffer.view
    assert view.readonly
    home.segment.view[0:10] = b"0123456789"
    assert bytes(view) == b"23456"


def test_bytes_of_no_pool_are_buffers_too() -> None:
    buffer = Buffer.of_bytes(b"event")
    assert bytes(buffer.view) == b"event"
    buffer.recycle()
    assert buffer.is_recycled


def test_of_many_threads_that_recycle_exactly_one_returns_the_segment(home: Home) -> None:
    threads, rounds = 4, 300
    start = threading.Barrier(threads)
    buffers = [Buffer(home.segment, 0, 1, home.returned.append) for _ in range(rounds)]
    for buffer in buffers:
        for _ in range(threads - 1):
            buffer.retain()

    def recycle_all() -> None:
        start.wait(60)
        for buffer in buffers:
            buffer.recycle()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(recycle_all) for _ in range(threads)]:
                future.result(30)
    finally:
        sys.setswitchinterval(interval)
    assert len(home.returned) == rounds
    assert all(buffer.is_recycled for buffer in buffers)


def build(consumer: BufferConsumer) -> bytes:
    """What the consumer sees, and the slice recycled."""
    buffer = consumer.build()
    data = bytes(buffer.view)
    buffer.recycle()
    return data


def test_a_flush_sends_part_of_a_segment_that_is_filled_on(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()
    assert not consumer.has_unread
    assert builder.append(memoryview(b"abc")) == 3
    assert consumer.has_unread
    assert build(consumer) == b"abc"
    assert not consumer.has_unread and not consumer.is_finished
    builder.append(memoryview(b"de"))
    assert builder.finish() == builder.finish() == builder.size == 5
    assert consumer.is_finished and consumer.has_unread
    assert build(consumer) == b"de"
    assert build(consumer) == b""


def test_append_takes_what_fits(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()
    assert builder.append(memoryview(b"0123456789")) == 10
    assert not builder.is_full
    assert builder.append(memoryview(b"abcdefghij")) == 6
    assert builder.is_full
    assert builder.append(memoryview(b"more")) == 0
    assert build(consumer) == b"0123456789abcdef"


def test_a_buffer_finished_empty_is_finished(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()
    builder.finish()
    assert consumer.is_finished and not consumer.has_unread
    assert build(consumer) == b""


def test_every_consumer_reads_from_the_first_byte(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    first = builder.create_consumer()
    builder.append(memoryview(b"abc"))
    assert build(first) == b"abc"
    second = builder.create_consumer()
    builder.append(memoryview(b"d"))
    assert (build(first), build(second)) == (b"d", b"abcd")


def test_what_is_over_is_refused(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()
    builder.finish()
    with pytest.raises(ExchangeError, match="finished"):
        builder.append(memoryview(b"a"))
    with pytest.raises(ExchangeError, match="finished"):
        builder.create_consumer()
    consumer.close()
    with pytest.raises(ExchangeError, match="closed"):
        consumer.build()


@pytest.mark.parametrize("last", ["builder", "consumer", "slice 1", "slice 2"])
def test_the_segment_returns_when_nobody_can_look_at_it_any_more(home: Home, last: str) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()
    builder.append(memoryview(b"abc"))
    slices = consumer.build(), consumer.build()
    release = {
        "builder": builder.finish,
        "consumer": consumer.close,
        "slice 1": slices[0].recycle,
        "slice 2": slices[1].recycle,
    }
    release_last = release.pop(last)
    for release_one in release.values():
        release_one()
    assert not home.has_it
    release_last()
    assert home.has_it
    builder.finish()
    consumer.close()
    assert home.has_it


def test_a_slice_recycled_twice_does_not_take_the_reference_of_another(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()
    one = consumer.build()
    one.recycle()
    with pytest.raises(ExchangeError, match="recycled twice"):
        one.recycle()
    builder.finish()
    assert not home.has_it
    consumer.close()
    assert home.has_it


@settings(deadline=None, derandomize=True)
@given(
    steps=st.lists(st.one_of(st.binary(max_size=6), st.sampled_from(["build", "finish", "recycle"])), max_size=30),
    readers=st.integers(1, 3),
)
def test_any_interleaving_delivers_every_byte_once_and_returns_the_segment_once(
    steps: list[bytes | str], readers: int
) -> None:
    home = Home()
    builder = BufferBuilder(home.segment, home.returned.append)
    consumers = [builder.create_consumer() for _ in range(readers)]
    written, seen, slices = b"", [b""] * readers, []
    for step in steps:
        if isinstance(step, bytes):
            if not builder.is_finished:
                written += step[: builder.append(memoryview(step))]
        elif step == "build":
            for index, consumer in enumerate(consumers):
                buffer = consumer.build()
                seen[index] += bytes(buffer.view)
                slices.append(buffer)
            assert seen == [written] * readers
        elif step == "finish":
            assert builder.finish() == len(written)
        elif slices:
            slices.pop(0).recycle()
        assert all(
            consumer.has_unread == (len(got) < len(written)) for consumer, got in zip(consumers, seen, strict=True)
        )
        assert not home.has_it
    builder.finish()
    for index, consumer in enumerate(consumers):
        assert consumer.is_finished
        seen[index] += build(consumer)
        consumer.close()
    for buffer in slices:
        buffer.recycle()
    assert seen == [written] * readers and home.has_it


def test_a_reader_on_another_thread_sees_every_byte_in_order() -> None:
    size = 20_000
    home = Home(size)
    expected = bytes(index & 0xFF for index in range(size))
    builder = BufferBuilder(home.segment, home.returned.append)
    consumer = builder.create_consumer()

    def read() -> bytes:
        seen = b""
        while True:
            finished = consumer.is_finished
            seen += build(consumer)
            if finished:
                consumer.close()
                return seen

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read)
        view = memoryview(expected)
        for start in range(0, size, 7):
            builder.append(view[start : start + 7])
        builder.finish()
        assert future.result(30) == expected
    assert home.has_it
