"""An input gate polls its channels in turn, queues each once, and notifies the waiting task."""

from __future__ import annotations

import threading

import pytest

from headgate.errors import ExchangeError
from headgate.exchange.gate import InputGate
from headgate.memory.buffer import Buffer
from headgate.records.events import Event
from tests.exchange.scripted import ScriptedChannel


class Scripted(ScriptedChannel):
    """Counts how often it is released."""

    released = 0

    def release(self) -> None:
        self.released += 1


class Gate:
    def __init__(self, channels: int) -> None:
        self.notified = 0
        self.gate = InputGate(self._on_data)
        self.channels = [Scripted(index) for index in range(channels)]
        self.gate.channels = self.channels

    def _on_data(self) -> None:
        self.notified += 1

    def put(self, channel: int, *contents: bytes) -> None:
        self.channels[channel].items.extend(Buffer.of_bytes(content) for content in contents)
        self.gate.notify(channel)

    def poll(self) -> tuple[int, bytes] | None:
        polled = self.gate.poll()
        if polled is None:
            return None
        assert isinstance(polled[1], list)
        (buffer,) = polled[1]
        return polled[0], bytes(buffer.view)


def test_a_channel_that_is_alone_has_all_the_turns_up_to_a_limit() -> None:
    gate = Gate(2)
    gate.put(0, b"1", b"2", b"3", b"4")
    polled = gate.gate.poll(3)
    assert polled is not None
    assert isinstance(polled[1], list)
    assert [bytes(buffer.view) for buffer in polled[1]] == [b"1", b"2", b"3"]
    gate.put(1, b"5", b"6")
    polled = gate.gate.poll(3)
    assert polled is not None
    assert isinstance(polled[1], list)
    assert polled[0] == 0
    assert [bytes(buffer.view) for buffer in polled[1]] == [b"4"]


def test_one_buffer_of_each_channel_in_turn() -> None:
    gate = Gate(3)
    gate.put(1, b"a", b"b", b"c")
    gate.put(0, b"d")
    gate.put(2, b"e", b"f")
    polls = [gate.poll() for _ in range(7)]
    assert polls == [(1, b"a"), (0, b"d"), (2, b"e"), (1, b"b"), (2, b"f"), (1, b"c"), None]


def test_a_channel_that_always_has_data_starves_no_other() -> None:
    gate = Gate(2)
    gate.put(0, *[b"x"] * 100)
    gate.poll()
    gate.put(1, b"y")
    polled = [gate.poll() for _ in range(2)]
    assert (1, b"y") in polled


def test_a_channel_stands_in_the_queue_once() -> None:
    gate = Gate(1)
    gate.put(0, b"a")
    gate.put(0, b"b")
    gate.gate.notify(0)
    assert gate.poll() == (0, b"a")
    assert gate.poll() == (0, b"b")
    assert gate.poll() is None
    assert not gate.gate.has_data


def test_a_waiting_task_is_notified_of_the_first_data() -> None:
    gate = Gate(2)
    assert gate.notified == 0
    assert not gate.gate.has_data
    gate.put(0, b"a")
    assert gate.notified == 1
    assert gate.gate.has_data
    gate.poll()
    gate.put(1, b"b")
    assert gate.notified == 2


def test_a_word_too_many_is_looked_at_in_vain() -> None:
    gate = Gate(2)
    gate.gate.notify(0)
    gate.put(1, b"a")
    assert gate.poll() == (1, b"a")
    assert gate.poll() is None


def test_data_that_come_during_a_look_are_not_missed() -> None:
    gate = Gate(1)
    poll = gate.channels[0].poll

    def poll_and_be_overtaken(limit: int) -> tuple[list[Buffer] | Event | None, bool]:
        item, _ = poll(limit)
        gate.channels[0].poll = poll  # type: ignore[method-assign]
        gate.put(0, b"late")
        return item, False

    gate.channels[0].poll = poll_and_be_overtaken  # type: ignore[assignment, method-assign]
    gate.put(0, b"a")
    assert gate.poll() == (0, b"a")
    assert gate.poll() == (0, b"late")
    assert gate.poll() is None


def test_a_failed_channel_fails_the_poll_and_leaves_the_others() -> None:
    gate = Gate(2)
    gate.channels[0].items.append(ExchangeError("broken"))
    gate.gate.notify(0)
    gate.put(1, b"a")
    with pytest.raises(ExchangeError, match="broken"):
        gate.poll()
    assert gate.poll() == (1, b"a")


def test_release_releases_all_channels() -> None:
    gate = Gate(3)
    gate.gate.release()
    assert [channel.released for channel in gate.channels] == [1, 1, 1]


def test_nothing_is_missed_between_two_threads() -> None:
    """Data are put by one thread; the other waits for the word whenever it finds nothing."""
    word = threading.Semaphore(0)
    gate = Gate(2)
    gate.gate = InputGate(word.release)
    gate.gate.channels = gate.channels
    count = 3000
    feeder = threading.Thread(target=lambda: [gate.put(n % 2, n.to_bytes(2, "big")) for n in range(count)])
    feeder.start()
    seen: list[list[int]] = [[], []]
    while len(seen[0]) + len(seen[1]) < count:
        polled = gate.poll()
        if polled is not None:
            seen[polled[0]].append(int.from_bytes(polled[1], "big"))
        else:
            assert word.acquire(timeout=60), "data came without a notification"
    feeder.join(60)
    assert seen == [list(range(0, count, 2)), list(range(1, count, 2))]
