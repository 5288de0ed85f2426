"""Counted buffers, and the marker protocol between the thread that fills a segment and the one that sends it."""

from __future__ import annotations

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.buffer_builder import BufferBuilder, BufferConsumer
from headgate.memory.segment import MemorySegment


class Home:
    """Where segments come back to."""

    def __init__(self, size: int = 16) -> None:
        self.segment = MemorySegment(7, memoryview(bytearray(size)))
        self.returned: list[MemorySegment] = []

    def take_back(self, *segments: MemorySegment) -> None:
        self.returned.extend(segments)

    @property
    def has_it(self) -> bool:
        assert len(self.returned) <= 1, "returned more than once"
        return self.returned == [self.segment]


@pytest.fixture
def home() -> Home:
    return Home()


def test_the_last_reference_returns_the_segment(home: Home) -> None:
    buffer = Buffer((home.segment,), 2, 5, home.take_back)
    assert buffer.retain() is buffer
    buffer.recycle()
    assert not home.has_it
    buffer.recycle()
    assert home.has_it


def test_recycling_or_retaining_what_is_recycled_is_refused(home: Home) -> None:
    buffer = Buffer((home.segment,), 2, 5, home.take_back)
    buffer.recycle()
    with pytest.raises(ExchangeError, match=r"segment 7, bytes 2 to 7\) was recycled twice"):
        buffer.recycle()
    with pytest.raises(ExchangeError, match="retained after it had been recycled"):
        buffer.retain()
    assert home.has_it


def test_the_view_is_a_read_only_window_without_copy(home: Home) -> None:
    buffer = Buffer((home.segment,), 2, 5, home.take_back)
    view = buffer.view
    assert view.readonly
    home.segment.view[0:10] = b"0123456789"
    assert bytes(view) == b"23456"


def test_bytes_of_no_pool_are_buffers_too() -> None:
    buffer = Buffer.of_bytes(b"event")
    assert bytes(buffer.view) == b"event"
    assert not buffer.is_whole
    buffer.recycle()
    with pytest.raises(ExchangeError, match="recycled twice"):
        buffer.recycle()


def test_of_many_threads_that_recycle_exactly_one_returns_the_segment(home: Home) -> None:
    threads, rounds = 4, 300
    start = threading.Barrier(threads)
    buffers = [Buffer((home.segment,), 0, 1, home.take_back) for _ in range(rounds)]
    for buffer in buffers:
        for _ in range(threads - 1):
            buffer.retain()

    def let_go() -> None:
        start.wait(60)
        for buffer in buffers:
            buffer.recycle()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(let_go) for _ in range(threads)]:
                future.result(60)
    finally:
        sys.setswitchinterval(interval)
    assert len(home.returned) == rounds


# ---- runs


class Homes:
    """Segments of 4 bytes, numbered 0 to `count` - 1, and how they come back. Together they are a run; the last of them
    lacks `missing` bytes."""

    def __init__(self, count: int, missing: int = 0) -> None:
        self.missing = missing
        self.segments = [MemorySegment(number, memoryview(bytearray([65 + number] * 4))) for number in range(count)]
        self.calls: list[list[int]] = []

    def take_back(self, *segments: MemorySegment) -> None:
        self.calls.append([segment.index for segment in segments])

    @property
    def returned(self) -> list[int]:
        """In order of their numbers; each once, or it is a fault."""
        return sorted(itertools.chain(*self.calls))

    def run(self) -> Buffer:
        return Buffer(self.segments, 0, 4 * len(self.segments) - self.missing, self.take_back)


def test_a_run_is_its_segments_one_behind_the_other_and_comes_back_in_one_call() -> None:
    homes = Homes(3)
    run = homes.run()
    assert [bytes(view) for view in run.views] == [b"AAAA", b"BBBB", b"CCCC"]
    assert run.size == 12
    assert all(view.readonly for view in run.views)
    assert run.pieces == run.views
    assert run.is_whole
    homes.segments[1].view[0:1] = b"x"
    assert bytes(run.views[1]) == b"xBBB", "not copied"
    run.retain().recycle()
    assert homes.calls == []
    run.recycle()
    assert homes.calls == [[0, 1, 2]]
    with pytest.raises(ExchangeError, match=r"segment 0, 1, 2, bytes 0 to 12\) was recycled twice"):
        run.recycle()


@pytest.mark.parametrize(
    ("buffer", "is_whole"),
    [
        pytest.param(Buffer((MemorySegment(3, memoryview(b"abcd")),), 0, 4, lambda *_: None), True, id="full"),
        pytest.param(Buffer((MemorySegment(3, memoryview(b"abcd")),), 0, 3, lambda *_: None), False, id="not full"),
        pytest.param(
            Buffer((MemorySegment(3, memoryview(b"abcd")),), 1, 3, lambda *_: None), False, id="a later slice"
        ),
        pytest.param(Buffer((MemorySegment(3, memoryview(b"abcd")),), 0, 0, lambda *_: None), False, id="empty"),
        pytest.param(Buffer((MemorySegment(3, memoryview(b"abcd")),), 0, 4, lambda *_: None, True), False, id="packed"),
        pytest.param(Buffer((MemorySegment(-1, memoryview(b"abcd")),), 0, 4, lambda *_: None), False, id="of no pool"),
    ],
)
def test_only_a_segment_that_is_full_as_it_came_from_its_pool_is_whole(buffer: Buffer, is_whole: bool) -> None:
    assert buffer.is_whole == is_whole


def test_the_last_segment_of_a_run_need_not_be_full() -> None:
    homes = Homes(3, missing=1)
    run = homes.run()
    assert [bytes(view) for view in run.views] == [b"AAAA", b"BBBB", b"CCC"]
    assert not run.is_whole
    assert all(view.readonly for view in run.views)


@pytest.mark.parametrize("missing", [0, 1, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_both_parts_of_a_run_bring_back_their_own_segments(count: int, missing: int) -> None:
    homes = Homes(5, missing)
    first, rest = homes.run().split(count)
    assert b"".join([*first.views, *rest.views]) == b"AAAABBBBCCCCDDDDEEEE"[: 20 - missing]
    assert (len(first.segments), first.size, rest.size) == (count, 4 * count, 20 - 4 * count - missing)
    assert first.is_whole
    assert rest.is_whole == (not missing)
    rest.recycle()
    assert homes.calls == [list(range(count, 5))]
    first.recycle()
    assert homes.calls[1] == list(range(count))


def test_the_parts_of_a_shared_run_wait_for_its_other_holder() -> None:
    homes = Homes(4)
    run = homes.run().retain()
    first, rest = run.split(1)
    first.recycle()
    rest.recycle()
    assert homes.calls == []
    assert b"".join(run.views) == b"AAAABBBBCCCCDDDD"
    run.recycle()
    assert homes.calls == [[0, 1, 2, 3]]


def test_a_run_that_its_other_holder_recycled_waits_for_all_its_parts() -> None:
    homes = Homes(4)
    run = homes.run().retain()
    first, rest = run.split(3)
    run.recycle()
    first.recycle()
    assert homes.calls == []
    rest.recycle()
    assert homes.returned == [0, 1, 2, 3]


@settings(derandomize=True, deadline=None)
@given(count=st.integers(1, 9), chances=st.randoms(use_true_random=False))
def test_each_segment_comes_back_once_however_a_run_is_split_held_and_recycled(count: int, chances: Random) -> None:
    homes = Homes(count)
    held = [homes.run()]  # one entry for each reference
    mine = [held[0]]  # the parts that may be split, in order
    for _ in range(chances.randrange(12)):
        part = chances.choice(mine)
        step = chances.choice(["retain", "split", "recycle one"])
        if step == "retain":
            held.append(part.retain())
        elif step == "split" and len(part.segments) > 1:
            at = mine.index(part)
            mine[at : at + 1] = parts = part.split(chances.randrange(1, len(part.segments)))
            held.remove(part)
            held += parts
        elif step == "recycle one" and held.count(part) > 1:
            held.remove(part)
            part.recycle()
    assert homes.calls == []
    assert b"".join(itertools.chain(*(part.views for part in mine))) == bytes(
        65 + i for i in range(count) for _ in "four"
    )
    together = chances.randrange(len(held) + 1)
    chances.shuffle(held)
    for buffer in held[together:]:
        held_on_to = {segment.index for segment in buffer.segments}
        assert held_on_to.isdisjoint(homes.returned), "it came back while it had a reference"
        buffer.recycle()
    recycle_all(held[:together])
    assert homes.returned == list(range(count))


def test_of_threads_that_recycle_parts_and_the_whole_exactly_one_returns_the_segments() -> None:
    rounds = 300
    homes = [Homes(4) for _ in range(rounds)]
    runs = [each.run().retain() for each in homes]
    start = threading.Barrier(2)

    def split() -> None:
        start.wait(60)
        for run in runs:
            for part in run.split(2):
                part.recycle()

    def let_go() -> None:
        start.wait(60)
        for run in runs:
            run.recycle()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(split), pool.submit(let_go)]:
                future.result(60)
    finally:
        sys.setswitchinterval(interval)
    assert all(each.returned == [0, 1, 2, 3] for each in homes)


def test_buffers_of_one_pool_that_are_recycled_together_come_back_in_one_call() -> None:
    homes, others = Homes(4), Homes(2)
    first, rest = homes.run().split(1)
    recycle_all([first, rest, others.run()])
    assert homes.calls == [[0, 1, 2, 3]]
    assert others.calls == [[0, 1]]


# ---- segments that are filled while they are read


def build(consumer: BufferConsumer) -> bytes:
    """What the consumer sees, and the slice recycled."""
    buffer = consumer.build()
    data = bytes(buffer.view)
    buffer.recycle()
    return data


def test_a_flush_sends_part_of_a_segment_that_is_filled_on(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.take_back)
    consumer = builder.create_consumer()
    assert not consumer.has_unread
    assert builder.append(memoryview(b"abc")) == 3
    assert consumer.has_unread
    assert build(consumer) == b"abc"
    assert not consumer.has_unread
    assert not consumer.is_finished
    builder.append(memoryview(b"de"))
    assert builder.finish() == builder.finish() == builder.size == 5
    assert consumer.is_finished
    assert consumer.has_unread
    assert build(consumer) == b"de"
    assert build(consumer) == b""


def test_append_takes_what_fits(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.take_back)
    consumer = builder.create_consumer()
    assert builder.append(memoryview(b"0123456789")) == 10
    assert not builder.is_full
    assert builder.append(memoryview(b"abcdefghij")) == 6
    assert builder.is_full
    assert builder.append(memoryview(b"more")) == 0
    assert build(consumer) == b"0123456789abcdef"


def test_a_buffer_finished_empty_is_finished(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.take_back)
    consumer = builder.create_consumer()
    builder.finish()
    assert consumer.is_finished
    assert not consumer.has_unread
    assert build(consumer) == b""


def test_every_consumer_reads_from_the_first_byte(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.take_back)
    first = builder.create_consumer()
    builder.append(memoryview(b"abc"))
    assert build(first) == b"abc"
    second = builder.create_consumer()
    builder.append(memoryview(b"d"))
    assert (build(first), build(second)) == (b"d", b"abcd")


def test_what_is_over_is_refused(home: Home) -> None:
    builder = BufferBuilder(home.segment, home.take_back)
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
def test_the_segment_returns_after_the_last_reference(home: Home, last: str) -> None:
    builder = BufferBuilder(home.segment, home.take_back)
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
    builder = BufferBuilder(home.segment, home.take_back)
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
    builder = BufferBuilder(home.segment, home.take_back)
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
    assert seen == [written] * readers
    assert home.has_it


def test_a_reader_on_another_thread_sees_every_byte_in_order() -> None:
    size = 20_000
    home = Home(size)
    expected = bytes(index & 0xFF for index in range(size))
    builder = BufferBuilder(home.segment, home.take_back)
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
        assert future.result(60) == expected
    assert home.has_it
