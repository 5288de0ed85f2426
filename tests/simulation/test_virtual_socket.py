"""The virtual connection: order, time, and how many bytes it holds when the peer reads nothing."""

from __future__ import annotations

import selectors
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.simulation.costs import Costs, Line
from headgate.simulation.virtual_socket import VirtualSocket, connection
from headgate.simulation.work import Work
from headgate.simulation.world import World

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
LINE = Line(latency=0.5, bytes_per_s=1000.0, buffer=3000)


def pair(line: Line = LINE) -> tuple[World, VirtualSocket, VirtualSocket]:
    world = World()
    return world, *connection(Work(world, Costs(byte=0.0)), line)


def read(sock: VirtualSocket, size: int) -> bytes:
    return sock.recv(size)


def test_bytes_take_the_time_of_the_line_and_its_latency() -> None:
    world, one, other = pair()
    came = list[float]()
    other.changed = lambda sock: came.append(world.now)
    assert one.send(b"x" * 1000) == 1000
    one.send(b"y" * 500)
    world.run()
    assert came == [1.5, 2.0]
    assert read(other, 2000) == b"x" * 1000 + b"y" * 500


def test_a_peer_that_reads_nothing_stops_the_sender_after_both_buffers() -> None:
    world, one, _ = pair()
    sent = 0
    for _ in range(20):
        try:
            sent += one.send(b"x" * 1000)
        except BlockingIOError:
            world.run()
    assert sent == one.in_kernel == 2 * LINE.buffer
    with pytest.raises(BlockingIOError):
        one.send(b"x")
    assert not one.ready(WRITE)


def test_a_full_socket_is_writable_again_when_a_third_of_its_buffer_is_free() -> None:
    world, one, other = pair()
    for _ in range(4):
        while True:
            try:
                one.send(b"x" * 1000)
            except BlockingIOError:
                break
        world.run()
    told = list[VirtualSocket]()
    one.changed = told.append
    assert not one.ready(WRITE)
    read(other, 900)
    world.run()
    assert (told, one.ready(WRITE)) == ([], 0)
    read(other, 100)
    world.run()
    assert (told, one.ready(WRITE)) == ([one], WRITE)


def test_fewer_bytes_than_the_low_water_mark_do_not_make_a_socket_readable() -> None:
    world, one, other = pair()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10)
    one.send(b"x" * 9)
    world.run()
    assert not other.ready(READ)
    one.send(b"x")
    world.run()
    assert other.ready(READ)
    with pytest.raises(BlockingIOError):
        one.recv(1)


@given(st.lists(st.binary(min_size=1, max_size=4000), max_size=12), st.lists(st.integers(1, 2500), min_size=1))
def test_all_bytes_arrive_once_and_in_order(messages: list[bytes], reads: list[int]) -> None:
    world, one, other = pair()
    wanted, unsent, got = b"".join(messages), b"".join(messages), b""
    turn = 0
    while len(got) < len(wanted):
        if unsent:
            try:
                unsent = unsent[one.sendmsg([unsent[:1500], unsent[1500:4000]], [], 0) :]
            except BlockingIOError:
                pass
        world.run(world.now + 1.0)
        size = reads[turn % len(reads)]
        turn += 1
        places = [memoryview(bytearray(size // 2)), memoryview(bytearray(size - size // 2))]
        try:
            (count,) = other.recvmsg_into(places)
        except BlockingIOError:
            continue
        got += b"".join(places)[:count]
        assert len(got) + one.in_kernel == len(wanted) - len(unsent)
    assert got == wanted
    world.run()
    assert one.in_kernel == 0
