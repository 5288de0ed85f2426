"""The control link: messages with payloads both ways, heartbeats, and one clear word when it is lost."""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.transport.control_link import MAX_FRAME, MAX_TEXT, Codec, ControlLink, TooLong
from headgate.transport.network_thread import NetworkThread
from tests.transport.conftest import PATIENCE, MakeNetwork, on

LONG = 1000.0
#: Any JSON is a message.
JSON = Codec(lambda message: json.dumps(message).encode(), json.loads)


class End:
    """One end, and what it heard."""

    def __init__(self, network: NetworkThread, sock: socket.socket, heartbeat_timeout: float = LONG) -> None:
        self.network = network
        sock.setblocking(False)
        self.heard: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
        self.lost: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.link = ControlLink(
            network,
            sock,
            heartbeat_timeout=heartbeat_timeout,
            codec=JSON,
            on_message=lambda message, payload: self.heard.put((message, payload)),
            on_lost=self.lost.put,
        )
        on(network, self.link.start)

    def close(self) -> None:
        on(self.network, self.link.close)


@pytest.fixture
def ends(network_of: MakeNetwork) -> Iterator[tuple[End, End]]:
    one, other = socket.socketpair()
    pair = End(network_of("driver"), one), End(network_of("taskmanager"), other)
    yield pair
    for end in pair:
        end.close()


@pytest.fixture
def raw(network: NetworkThread) -> Iterator[Callable[[float], tuple[End, socket.socket]]]:
    """An end, and the bare socket that it talks to."""
    made: list[tuple[End, socket.socket]] = []

    def make(heartbeat_timeout: float = LONG) -> tuple[End, socket.socket]:
        ours, theirs = socket.socketpair()
        theirs.settimeout(PATIENCE)
        made.append((End(network, ours, heartbeat_timeout), theirs))
        return made[-1]

    yield make
    for end, sock in made:
        end.close()
        sock.close()


def frame(text: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">II", 8 + len(text) + len(payload), len(text)) + text + payload


def test_messages_go_both_ways_with_and_without_payload(ends: tuple[End, End]) -> None:
    one, other = ends
    one.link.send({"type": "start", "n": 1, "name": "ä"})
    one.link.send({"type": "deliver"}, b"\x00payload\xff")
    other.link.send({"type": "registered"}, memoryview(b"viewed"))
    assert other.heard.get(timeout=PATIENCE) == ({"type": "start", "n": 1, "name": "ä"}, b"")
    assert other.heard.get(timeout=PATIENCE) == ({"type": "deliver"}, b"\x00payload\xff")
    assert one.heard.get(timeout=PATIENCE) == ({"type": "registered"}, b"viewed")


def test_a_payload_larger_than_all_socket_buffers_arrives_whole(ends: tuple[End, End]) -> None:
    payload = bytes(range(256)) * 20_000
    ends[0].link.send({"type": "deliver"}, payload)
    ends[0].link.send({"type": "after"})
    assert ends[1].heard.get(timeout=PATIENCE) == ({"type": "deliver"}, payload)
    assert ends[1].heard.get(timeout=PATIENCE) == ({"type": "after"}, b"")


def test_messages_of_several_threads_do_not_mix(ends: tuple[End, End]) -> None:
    def send(which: int) -> None:
        for number in range(200):
            ends[0].link.send({"which": which, "number": number}, bytes([which]) * 100)

    threads = [threading.Thread(target=send, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    heard: list[list[int]] = [[], [], []]
    for _ in range(600):
        message, payload = ends[1].heard.get(timeout=PATIENCE)
        assert payload == bytes([message["which"]]) * 100
        heard[message["which"]].append(message["number"])
    for thread in threads:
        thread.join(PATIENCE)
    assert heard == [list(range(200))] * 3


def test_a_message_byte_by_byte_is_a_message(raw: Callable[..., tuple[End, socket.socket]]) -> None:
    end, sock = raw()
    for byte in frame(b'{"type": "x"}', b"pay"):
        sock.sendall(bytes([byte]))
        on(end.network, lambda: None)
    assert end.heard.get(timeout=PATIENCE) == ({"type": "x"}, b"pay")


def test_what_is_queued_is_sent_before_the_link_is_closed(raw: Callable[..., tuple[End, socket.socket]]) -> None:
    end, sock = raw()

    def send_and_close() -> None:
        end.link.send({"type": "last words"})
        end.link.close()

    on(end.network, send_and_close)
    said = b""
    while part := sock.recv(1000):
        said += part
    assert said.endswith(frame(json.dumps({"type": "last words"}).encode()))
    assert end.lost.empty()


def test_the_end_of_the_peer_is_reported_once(raw: Callable[..., tuple[End, socket.socket]]) -> None:
    end, sock = raw()
    assert sock.recv(1000), "its first heartbeat"
    sock.close()
    assert end.lost.get(timeout=PATIENCE) == "its connection was closed"
    end.link.send({"type": "goes nowhere"})
    on(end.network, end.link.close)
    assert end.lost.empty()


class Narrow:
    """A socket that takes ten bytes at a time, and the network thread that it is registered with."""

    def __init__(self) -> None:
        self.said = b""
        self.is_closed = False

    def send(self, piece: bytes | memoryview) -> int:
        self.said += bytes(piece[:10])
        return len(piece[:10])

    def close(self) -> None:
        self.is_closed = True

    def mark(self, link: ControlLink) -> None: ...

    def unregister(self, sock: object) -> None: ...


def test_what_does_not_fit_before_the_close_is_cut_off_and_nothing_follows_the_gap() -> None:
    narrow = Narrow()
    link = ControlLink(
        narrow,  # type: ignore[arg-type]
        narrow,  # type: ignore[arg-type]
        heartbeat_timeout=LONG,
        codec=JSON,
        on_message=lambda message, payload: None,
        on_lost=lambda reason: None,
    )
    link.send({"type": "long"}, b"a payload of some length")
    link.send({"type": "next"})
    link.close()
    assert narrow.is_closed
    assert narrow.said == frame(b'{"type": "long"}', b"a payload of some length")[:10]


class Busy(Narrow):
    """A socket of a link on which another thread sends a message while the link sends."""

    link: ControlLink

    def send(self, piece: bytes | memoryview) -> int:
        self.said += bytes(piece)
        self.link.send({"type": "of another thread"})
        return len(piece)


def test_a_message_of_another_thread_while_the_link_is_closed_does_no_harm() -> None:
    busy = Busy()
    busy.link = ControlLink(
        busy,  # type: ignore[arg-type]
        busy,  # type: ignore[arg-type]
        heartbeat_timeout=LONG,
        codec=JSON,
        on_message=lambda message, payload: None,
        on_lost=lambda reason: None,
    )
    busy.link.send({"type": "first"})
    busy.link.send({"type": "second"})
    busy.link.close()
    assert busy.is_closed
    assert busy.said == frame(b'{"type": "first"}') + frame(b'{"type": "second"}')


@pytest.mark.parametrize(
    ("message", "payload"), [({"x": "y" * MAX_TEXT}, b""), ({}, bytearray(MAX_FRAME - 9))], ids=["text", "payload"]
)
def test_what_the_other_end_would_refuse_is_not_sent(
    ends: tuple[End, End], message: dict[str, Any], payload: bytes
) -> None:
    """It ended the link, and the sender did not know why."""
    one, other = ends
    with pytest.raises(TooLong, match=f"at most {MAX_FRAME} bytes are allowed, and at most {MAX_TEXT} bytes of text"):
        one.link.send(message, payload)
    one.link.send({"type": "next"})
    assert other.heard.get(timeout=PATIENCE) == ({"type": "next"}, b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">II", 7, 0), "a frame of 7 bytes"),
        (struct.pack(">II", 20, 13), "a frame of 20 bytes"),
        (struct.pack(">II", MAX_FRAME + 1, 2), f"a frame of {MAX_FRAME + 1} bytes"),
        (struct.pack(">II", MAX_FRAME, MAX_TEXT + 1), f"a frame of {MAX_FRAME} bytes, {MAX_TEXT + 1} of them text"),
        (frame(b"", b"pay"), "a payload of 3 bytes without a message"),
        (frame(b"{"), "Expecting property name"),
    ],
)
def test_what_is_no_message_ends_the_link(
    raw: Callable[..., tuple[End, socket.socket]], data: bytes, reason: str
) -> None:
    end, sock = raw()
    sock.sendall(data)
    assert end.lost.get(timeout=PATIENCE).startswith(f"it sent bytes that are not a message: {reason}")
    assert end.heard.empty()


def test_a_silent_peer_is_lost_after_the_heartbeat_timeout(raw: Callable[..., tuple[End, socket.socket]]) -> None:
    end, _ = raw(heartbeat_timeout=0.02)
    assert end.lost.get(timeout=PATIENCE) == "no heartbeat for 0.02 s"
    assert end.lost.empty()


def test_heartbeats_are_sent_four_times_as_often_and_are_no_messages(
    network: NetworkThread, raw: Callable[..., tuple[End, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(network, "call_later", lambda delay, work: later.append((delay, work)))
    end, sock = raw(heartbeat_timeout=8.0)
    on(network, lambda: later[0][1]())
    on(network, lambda: None)
    beat = frame(b"")
    assert [delay for delay, _ in later] == [2.0, 2.0]
    assert sock.recv(2 * len(beat), socket.MSG_WAITALL) == beat * 2
    sock.sendall(beat + frame(b'{"type": "x"}'))
    assert end.heard.get(timeout=PATIENCE) == ({"type": "x"}, b"")


def test_a_peer_that_is_heard_is_not_lost(
    network: NetworkThread, raw: Callable[..., tuple[End, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(network, "call_later", lambda delay, work: later.append(work))
    monkeypatch.setattr("headgate.transport.control_link.time", SimpleNamespace(monotonic=lambda: now[0]))
    end, sock = raw(heartbeat_timeout=8.0)
    now[0] = 107.0
    sock.sendall(frame(b'{"type": "x"}'))
    end.heard.get(timeout=PATIENCE)
    now[0] = 114.0
    on(network, later.pop())
    assert end.lost.empty()
    now[0] = 115.1
    on(network, later.pop())
    assert end.lost.get(timeout=PATIENCE) == "no heartbeat for 8 s"
