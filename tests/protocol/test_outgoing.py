"""What a socket has not taken yet: order, buffers back when they are written, and the two marks."""

from __future__ import annotations

import os
import random
import tempfile

from headgate.memory.buffer import Buffer, FileRegion
from headgate.memory.segment import MemorySegment
from headgate.protocol.outgoing import HIGH_MARK, LOW_MARK, Outgoing


def frame(data: bytes, recycled: list[int], number: int = 0) -> tuple[list[bytes | memoryview], list[Buffer]]:
    """A header of one byte and a buffer that tells `recycled` its number."""
    buffer = Buffer((MemorySegment(number, memoryview(data)),), 0, len(data), lambda *segments: recycled.append(number))
    return [b"|", buffer.view], [buffer]


def test_bytes_leave_in_order_however_the_socket_takes_them() -> None:
    chance = random.Random(5)
    for _ in range(200):
        outgoing, recycled, wire, said = Outgoing(), [], b"", b""
        number = 0
        while number < 6 or outgoing:
            if number < 6 and (not outgoing or chance.random() < 0.5):
                data = bytes([65 + number]) * chance.randint(1, 9)
                outgoing.add(*frame(data, recycled, number))
                said, number = said + b"|" + data, number + 1
            taken = b"".join(outgoing.next_write)[: chance.randint(0, 12)]
            wire += taken
            outgoing.written(len(taken))
            assert outgoing.unwritten == len(said) - len(wire)
            assert len(recycled) == wire.count(b"|") - (not said[len(wire) :].startswith(b"|") and wire != said)
        assert wire == said
        assert recycled == list(range(6))


def test_what_is_added_together_is_recycled_together() -> None:
    outgoing, recycled = Outgoing(), []
    one, two = frame(b"aa", recycled, 1), frame(b"bb", recycled, 2)
    outgoing.add(one[0] + two[0], one[1] + two[1])
    outgoing.written(5)
    assert recycled == []
    outgoing.written(1)
    assert recycled == [1, 2]
    assert not outgoing


def test_nothing_is_added_from_the_high_mark_on_and_again_below_the_low_one() -> None:
    outgoing = Outgoing()
    outgoing.add([bytes(HIGH_MARK - 1)], [])
    outgoing.written(0)
    assert outgoing.is_writable
    outgoing.add([b"x"], [])
    outgoing.written(0)
    assert not outgoing.is_writable
    outgoing.written(HIGH_MARK - LOW_MARK)
    assert outgoing.unwritten == LOW_MARK
    assert not outgoing.is_writable
    outgoing.written(1)
    assert outgoing.is_writable


def test_one_write_has_no_more_pieces_than_the_kernel_takes() -> None:
    outgoing = Outgoing()
    for _ in range(3000):
        outgoing.add([b"x"], [])
    writes = 0
    while outgoing:
        assert len(outgoing.next_write) <= 1024
        outgoing.written(len(outgoing.next_write))
        writes += 1
    assert writes == 3


def test_a_lost_connection_gives_all_buffers_back() -> None:
    outgoing, recycled = Outgoing(), []
    for number in range(3):
        outgoing.add(*frame(b"abc", recycled, number))
    outgoing.written(6)
    assert recycled == [0]
    outgoing.release()
    assert recycled == [0, 1, 2]
    assert not outgoing
    assert outgoing.unwritten == 0


def test_regions_of_files_leave_in_their_place_however_the_socket_takes_them() -> None:
    """Memory is gathered up to the next region, and a region goes alone."""
    chance = random.Random(6)
    content = bytes(range(256))
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        for _ in range(100):
            outgoing, wire, said = Outgoing(), b"", b""
            for number in range(8):
                at, size = chance.randrange(200), chance.randint(1, 40)
                is_region = chance.random() < 0.5
                body = FileRegion(file.fileno(), at, size) if is_region else memoryview(content)[at : at + size]
                outgoing.add([bytes([number]), body], [])
                said += bytes([number]) + content[at : at + size]
            while outgoing:
                region = outgoing.next_region
                if region is None:
                    taken = b"".join(outgoing.next_write)
                    assert taken
                else:
                    assert outgoing.next_write == []
                    taken = os.pread(region.descriptor, region.size, region.offset)
                taken = taken[: chance.randint(0, 30)]
                wire += taken
                outgoing.written(len(taken))
                assert outgoing.unwritten == len(said) - len(wire)
            assert wire == said
            assert not outgoing.has_file
