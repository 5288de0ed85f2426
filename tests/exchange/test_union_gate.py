"""Several gates as one input: fair, and only those with data are looked at."""

from __future__ import annotations

from collections import deque

import pytest

from headgate.errors import ExchangeError
from headgate.exchange.gate import InputGate
from headgate.exchange.union_gate import UnionGate
from headgate.memory.buffer import Buffer
from headgate.records.events import Event
from tests.exchange.link import buffers_in
from tests.exchange.scripted import ScriptedChannel


class Channel(ScriptedChannel):
    """Counts how often it is asked; may have failed for good."""

    def __init__(self, index: int, gate: InputGate) -> None:
        super().__init__(index)
        self.gate = gate
        self.asked = 0
        self.failure: ExchangeError | None = None

    def put(self, *contents: bytes) -> None:
        self.items.extend(map(Buffer.of_bytes, contents))
        self.gate.notify(self.index)

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return super().poll(limit)


class Union:
    """Gates with so many channels each."""

    def __init__(self, *channels: int) -> None:
        self.woken = 0
        self.gates = [InputGate(self._wake) for _ in channels]
        for gate, count in zip(self.gates, channels, strict=True):
            gate.channels = [Channel(index, gate) for index in range(count)]
        self.union = UnionGate(self.gates)

    def _wake(self) -> None:
        assert self.union.has_data, "woken before the gate stands in the queue"
        self.woken += 1

    def channel(self, gate: int, index: int = 0) -> Channel:
        channel = self.gates[gate].channels[index]
        assert isinstance(channel, Channel)
        return channel

    def poll_all(self) -> list[tuple[int, bytes]]:
        seen = []
        while (polled := self.union.poll()) is not None:
            channel, taken = polled
            assert isinstance(taken, list)
            seen += [(channel, bytes(buffer.view)) for buffer in taken]
        return seen


def test_channels_are_numbered_through() -> None:
    union = Union(2, 1, 3)
    assert union.union.channels == 6
    union.channel(2, 1).put(b"c")
    union.channel(1).put(b"b")
    union.channel(0, 1).put(b"a")
    assert union.poll_all() == [(4, b"c"), (2, b"b"), (1, b"a")]
    assert union.woken == 3
    assert not union.union.has_data


def test_one_buffer_of_each_gate_in_turn() -> None:
    union = Union(1, 1)
    union.channel(0).put(b"1", b"2", b"3")
    union.channel(1).put(b"4", b"5")
    assert [content for _, content in union.poll_all()] == [b"1", b"4", b"2", b"5", b"3"]


def test_a_gate_that_is_alone_gives_several_at_once() -> None:
    union = Union(1, 1)
    union.channel(0).put(b"1", b"2", b"3")
    assert len(buffers_in(union.union.poll(2))) == 2
    union.channel(1).put(b"4")
    assert len(buffers_in(union.union.poll(2))) == 1


def test_of_a_thousand_gates_only_those_with_data_are_asked() -> None:
    union = Union(*[1] * 1000)
    for gate in (7, 500, 999):
        union.channel(gate).put(b"x")
    assert [channel for channel, _ in union.poll_all()] == [7, 500, 999]
    asked = [gate for gate in range(1000) if union.channel(gate).asked]
    assert asked == [7, 500, 999]


def test_data_that_were_there_before_are_found() -> None:
    gate = InputGate(lambda: None)
    gate.channels = [channel := Channel(0, gate)]
    channel.put(b"early")
    polled = UnionGate([gate]).poll()
    assert polled is not None
    assert polled[0] == 0


def test_data_that_come_during_a_look_are_not_forgotten() -> None:
    """A channel that gets data while it is polled stands in the queue again."""
    union = Union(1)
    channel = union.channel(0)

    class Late(deque[Buffer | Event | ExchangeError]):
        def popleft(self) -> Buffer | Event | ExchangeError:
            first = super().popleft()
            if not self:
                channel.items = deque([Buffer.of_bytes(b"late")])
                union.gates[0].notify(0)
            return first

    channel.items = Late([Buffer.of_bytes(b"early")])
    union.gates[0].notify(0)
    assert [content for _, content in union.poll_all()] == [b"early", b"late"]


def test_a_channel_that_fails_does_not_hide_what_others_of_its_gate_have() -> None:
    union = Union(2)
    union.channel(0, 0).failure = ExchangeError("lost")
    union.channel(0, 0).put()
    union.channel(0, 1).put(b"here")
    with pytest.raises(ExchangeError, match="lost"):
        union.union.poll()
    assert union.poll_all() == [(1, b"here")]
