"""The network thread: work in order, coalesced wakes, timers, and an end that leaves nothing open."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from headgate.errors import NetworkMemoryFull
from headgate.memory.segment import SegmentArena
from headgate.transport.network_thread import NetworkThread
from tests.transport.conftest import PATIENCE, MakeNetwork, on, wait_for_free_turn


class Reader:
    """A link that reads what comes and counts how often it was called."""

    def __init__(self, network: NetworkThread, sock: socket.socket) -> None:
        self.network, self.sock = network, sock
        self.received = b""
        self.marks = 0
        self.marked = threading.Event()
        self.read = threading.Event()
        network.post(lambda: network.register(sock, selectors.EVENT_READ, self))

    def on_ready(self, mask: int) -> None:
        assert mask == selectors.EVENT_READ
        self.received += self.sock.recv(100)
        self.read.set()

    def on_marked(self) -> None:
        self.marks += 1
        self.marked.set()


def test_work_runs_on_the_thread_in_the_order_posted(network: NetworkThread) -> None:
    ran: list[tuple[int, str]] = []
    for number in range(100):
        network.post(lambda number=number: ran.append((number, threading.current_thread().name)))  # type: ignore[misc]
    on(network, lambda: None)
    assert ran == [(number, "headgate-test") for number in range(100)]


def test_work_of_several_threads_keeps_the_order_of_each(network: NetworkThread) -> None:
    ran: list[list[int]] = [[], []]

    def post(which: int) -> None:
        for number in range(500):
            network.post(partial(ran[which].append, number))

    threads = [threading.Thread(target=post, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    on(network, lambda: None)
    assert ran == [list(range(500))] * 2


def test_work_may_post_work(network: NetworkThread) -> None:
    ran: list[str] = []
    done = threading.Event()
    network.post(lambda: network.post(lambda: (ran.append("second"), done.set())))
    assert done.wait(PATIENCE)
    assert ran == ["second"]


def test_wakes_are_coalesced_while_the_thread_is_busy(network: NetworkThread) -> None:
    busy, go_on, sent = threading.Event(), threading.Event(), []
    network.post(lambda: (busy.set(), go_on.wait(PATIENCE)))
    assert busy.wait(PATIENCE)

    class Counting:
        def set(self) -> None:
            sent.append(None)
            wake_up.set()

        def clear(self) -> None:
            wake_up.clear()

    wake_up = network._wake_up
    network._wake_up = Counting()  # type: ignore[assignment]
    ran: list[int] = []
    for number in range(1000):
        network.post(partial(ran.append, number))
    go_on.set()
    on(network, lambda: None)
    assert len(sent) <= 3
    assert ran == list(range(1000))


def test_no_wake_is_missed(network: NetworkThread) -> None:
    """The thread goes to sleep after each; the next must wake it."""
    for _ in range(500):
        on(network, lambda: None)


def test_a_marked_link_is_called(network: NetworkThread) -> None:
    ours, theirs = socket.socketpair()
    link = Reader(network, ours)
    network.mark(link)
    assert link.marked.wait(PATIENCE)
    assert link.marks == 1
    theirs.close()
    on(network, lambda: network.unregister(ours))
    ours.close()


class Served:
    """A link that records the threads that call it. `during` runs in each call."""

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        self.threads: list[str] = []
        self.during = during

    def on_ready(self, mask: int) -> None: ...

    def on_marked(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.during()


class Holder(Served):
    """A link whose socket holds bytes until the first call of `on_ready`."""

    def __init__(self, network: NetworkThread, sock: socket.socket) -> None:
        super().__init__()
        self.network, self.sock = network, sock
        self.read = threading.Event()

    def on_ready(self, mask: int) -> None:
        self.network.hold(self.sock, False)
        self.read.set()


def on_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(PATIENCE)


def test_a_served_link_is_called_on_the_calling_thread_while_the_network_thread_waits(network: NetworkThread) -> None:
    wait_for_free_turn(network)
    link = Served()
    network.serve(link)
    assert link.threads == ["MainThread"]


def test_a_link_that_is_served_during_a_turn_is_called_by_the_network_thread(network: NetworkThread) -> None:
    link = Served()
    on(network, lambda: on_thread(lambda: network.serve(link)))
    on(network, lambda: None)
    assert link.threads == ["headgate-test"]


def test_a_link_that_is_served_by_a_served_link_is_called_by_the_network_thread(network: NetworkThread) -> None:
    wait_for_free_turn(network)
    inner = Served()
    outer = Served(lambda: network.serve(inner))
    network.serve(outer)
    on(network, lambda: None)
    assert (outer.threads, inner.threads) == (["MainThread"], ["headgate-test"])


def test_callbacks_of_served_and_marked_links_never_overlap(network: NetworkThread) -> None:
    running = threading.Lock()
    overlaps: list[None] = []

    def during() -> None:
        if not running.acquire(blocking=False):
            overlaps.append(None)
            return
        sum(range(1000))  # long enough for a switch of threads
        running.release()

    links = [Served(during) for _ in range(3)]

    def work(link: Served) -> None:
        for number in range(2000):
            (network.serve if number % 3 else network.mark)(link)

    threads = [threading.Thread(target=work, args=(link,)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for _ in range(2):  # a turn leaves the marks that come during the turn to the next turn
        on(network, lambda: None)
    assert overlaps == []
    assert [len(link.threads) for link in links] == [2000] * 3


def test_an_error_of_a_served_link_is_reported_and_not_raised(
    network: NetworkThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Exception] = []
    monkeypatch.setattr(network, "_on_error", kept.append)
    wait_for_free_turn(network)

    def fail() -> None:
        raise NetworkMemoryFull("no room")

    network.serve(Served(fail))
    assert [str(error) for error in kept] == ["no room"]
    assert on(network, lambda: 7) == 7


def test_no_link_is_served_after_the_stop(network_of: MakeNetwork) -> None:
    network = network_of("stopping")
    network.stop(PATIENCE)
    link = Served()
    network.serve(link)
    assert link.threads == []


def test_a_served_link_may_register_its_socket(network: NetworkThread) -> None:
    wait_for_free_turn(network)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = Reader(network, ours)
        on(network, lambda: network.unregister(ours))
        network.serve(Served(lambda: network.modify(ours, selectors.EVENT_READ, reader)))
        theirs.send(b"hello")
        assert reader.read.wait(PATIENCE)
        on(network, lambda: network.unregister(ours))


def test_a_served_link_may_ask_for_the_bytes_that_a_tls_socket_holds(network: NetworkThread) -> None:
    """No selector sees these bytes. So the waiting network thread must look again."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Holder(network, ours)
        on(network, lambda: network.hold(ours, True))
        wait_for_free_turn(network)
        network.serve(Served(lambda: network.modify(ours, selectors.EVENT_READ, link)))
        assert link.read.wait(PATIENCE)
        on(network, lambda: network.unregister(ours))


def test_a_registered_socket_is_read_until_it_is_unregistered(network: NetworkThread) -> None:
    ours, theirs = socket.socketpair()
    link = Reader(network, ours)
    theirs.send(b"hello")
    assert link.read.wait(PATIENCE)
    assert link.received == b"hello"
    on(network, lambda: network.unregister(ours))
    theirs.send(b"unheard")
    on(network, lambda: None)
    assert link.received == b"hello"
    ours.close()
    theirs.close()


def test_timers_run_in_the_order_of_their_times(network: NetworkThread) -> None:
    ran: list[str] = []
    done = threading.Event()

    def set_timers() -> None:
        network.call_later(0.02, lambda: (ran.append("late"), done.set()))
        network.call_later(0.0, lambda: ran.append("first"))
        network.call_later(0.01, lambda: ran.append("early"))
        network.call_later(-1.0, lambda: ran.append("overdue"))

    on(network, set_timers)
    assert done.wait(PATIENCE)
    assert ran == ["overdue", "first", "early", "late"]


def test_timers_of_one_time_run_in_the_order_set(network: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr("headgate.transport.network_thread.time", SimpleNamespace(monotonic=lambda: 50.0))
    for number in range(20):
        network.call_later(0.0, partial(ran.append, number))
    on(network, lambda: None)
    on(network, lambda: None)
    monkeypatch.undo()
    assert ran == list(range(20))


def test_a_kept_error_holds_no_view_into_network_memory(
    network: NetworkThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = SegmentArena(1, 64)
    kept: list[Exception] = []
    monkeypatch.setattr(network, "_on_error", kept.append)

    def read() -> None:
        places = [arena.segments[0].view[:10]]
        raise NetworkMemoryFull(f"no room behind {len(places)} places")

    network.post(read)
    on(network, lambda: None)
    [error] = kept
    assert isinstance(error, NetworkMemoryFull)
    arena.close()


def test_an_error_of_one_link_does_not_silence_the_others(
    network: NetworkThread, caplog: pytest.LogCaptureFixture
) -> None:
    network.post(lambda: 1 // 0)
    assert on(network, lambda: 7) == 7
    assert [record.getMessage() for record in caplog.records] == ["error on the network thread"]
    assert caplog.records[0].exc_info is not None
    caplog.clear()


def test_stop_comes_after_the_work_posted_so_far(network_of: MakeNetwork) -> None:
    network, ran = network_of("stopping"), list[int]()
    for number in range(10):
        network.post(partial(ran.append, number))
    network.stop(PATIENCE)
    assert ran == list(range(10))
    assert not network._runner.is_alive()


def test_stop_on_the_thread_itself_does_not_wait_for_itself(network_of: MakeNetwork) -> None:
    network = network_of("stopping")
    network.post(lambda: network.stop(PATIENCE))
    network._runner.join(PATIENCE)
    assert not network._runner.is_alive()


def test_stop_closes_what_is_registered_and_leaves_no_descriptor() -> None:
    before = psutil.Process().num_fds()
    network = NetworkThread("stopping")
    network.start()
    pairs = [socket.socketpair() for _ in range(5)]
    for ours, _ in pairs:
        Reader(network, ours)
    on(network, lambda: None)
    network.stop(PATIENCE)
    for _, theirs in pairs:
        assert theirs.recv(1) == b"", "the other end learns of it"
        theirs.close()
    assert psutil.Process().num_fds() == before


def test_after_the_end_words_go_nowhere(network_of: MakeNetwork) -> None:
    network = network_of("stopping")
    network.stop(PATIENCE)
    network.post(lambda: None)
    network.call_later(0.0, lambda: None)
    network.stop(PATIENCE)


class Held:
    """A link whose socket has `left` bytes inside that no selector sees; it takes one at a time."""

    def __init__(self, network: NetworkThread, sock: socket.socket, left: int) -> None:
        self.network, self.sock, self.left = network, sock, left
        self.masks: list[int] = []
        self.empty = threading.Event()

    def on_ready(self, mask: int) -> None:
        self.masks.append(mask)
        self.left -= 1
        self.network.hold(self.sock, self.left > 0)
        if not self.left:
            self.empty.set()

    def on_marked(self) -> None: ...


def test_a_socket_with_bytes_inside_is_ready_for_a_link_that_reads(network: NetworkThread) -> None:
    """It is called in turn with the others, and no link that waits for another event is called."""
    ours, theirs = socket.socketpair()
    other, sender = socket.socketpair()
    held, reader = Held(network, ours, 3), Reader(network, other)

    def hold() -> None:
        network.hold(ours, True)
        network.register(ours, selectors.EVENT_READ, held)
        network.modify(ours, 0, held)

    on(network, hold)
    sender.send(b"x")
    assert reader.read.wait(PATIENCE), "the others are served"
    turns = [on(network, lambda: len(held.masks)) for _ in range(10)]
    assert turns == [0] * 10
    assert on(network, network._timeout) is None, "and the thread sleeps"
    on(network, lambda: network.modify(ours, selectors.EVENT_READ, held))
    assert held.empty.wait(PATIENCE)
    on(network, lambda: None)
    assert held.masks == [selectors.EVENT_READ] * 3
    for sock in (ours, other):
        on(network, partial(network.unregister, sock))
    for sock in (ours, theirs, other, sender):
        sock.close()
