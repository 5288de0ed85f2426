"""How links begin: listening, dialling, the handshake over real sockets, and every way in which it fails."""

from __future__ import annotations

import errno
import queue
import re
import socket
from collections.abc import Callable, Iterator

import pytest

from headgate.errors import ConfigError
from headgate.protocol.handshake import (
    ANSWER_BYTES,
    CONTROL_LINK,
    DATA_LINK,
    HELLO_BYTES,
    PROOF_BYTES,
    Credentials,
    Dialler,
    Listener,
)
from headgate.transport import sockets
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial, Server, listen
from tests.transport.conftest import PATIENCE, on

OURS = Credentials(b"j" * 16, 1, b"secret")


class Door:
    """A server, and the sockets and peers that came in."""

    def __init__(self, network: NetworkThread, credentials: Credentials = OURS) -> None:
        self.network = network
        self.came: queue.SimpleQueue[tuple[LinkSocket, int]] = queue.SimpleQueue()
        self.server = Server(
            network, listen("127.0.0.1", None), credentials, DATA_LINK, lambda sock, peer: self.came.put((sock, peer))
        )
        self.server.start()

    def close(self) -> None:
        on(self.network, self.server.close)
        while not self.came.empty():
            self.came.get()[0].close()


@pytest.fixture
def door(network: NetworkThread) -> Iterator[Door]:
    door = Door(network)
    yield door
    door.close()


def dial(
    network: NetworkThread, address: tuple[str, int], credentials: Credentials = OURS, kind: int = DATA_LINK
) -> LinkSocket | str:
    """The socket of a link, or why there is none."""
    outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
    network.post(
        Dial(
            network, address, credentials=credentials, kind=kind, peer=7, established=outcome.put, failed=outcome.put
        ).start
    )
    return outcome.get(timeout=PATIENCE)


def test_listen_takes_the_first_free_port_of_a_range() -> None:
    with listen("127.0.0.1", None) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=r"cannot listen on 127.0.0.1: .*; port_range=.* has no free port"):
            listen("127.0.0.1", (port, port))
        assert not taken.getblocking()
    with listen("127.0.0.1", (port, port)) as again:
        assert again.getsockname()[1] == port


def test_listen_on_a_host_that_is_not_ours_names_the_option() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192.0.2.1: .*check bind_host"):
        listen("192.0.2.1", None)


def test_peers_that_share_the_secret_get_a_socket_each(network: NetworkThread, door: Door) -> None:
    ours = dial(network, ("127.0.0.1", door.server.port))
    theirs, peer = door.came.get(timeout=PATIENCE)
    assert isinstance(ours, socket.socket)
    assert peer == 7
    for sock in (ours, theirs):
        assert not sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    ours.setblocking(True)
    ours.settimeout(PATIENCE)
    theirs.send(b"first bytes of the link")
    assert ours.recv(100) == b"first bytes of the link"
    ours.close()
    theirs.close()


@pytest.mark.usefixtures("five_tries")
def test_an_unreachable_peer_is_reported_with_its_address_at_the_deadline(network: NetworkThread) -> None:
    with listen("127.0.0.1", None) as closed:
        port = closed.getsockname()[1]
    reason = dial(network, ("127.0.0.1", port))
    assert isinstance(reason, str)
    assert re.fullmatch(rf"127\.0\.0\.1:{port}: \[Errno 111\] Connection refused \([2-9] times\)", reason)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (("255.255.255.255", 9), "255.255.255.255:9: [Errno "),
        (("127.0.0.1", 1 << 16), "127.0.0.1:65536: "),
        (("no\0host", 9), "no\0host:9: "),
    ],
)
def test_an_impossible_address_is_reported(network: NetworkThread, address: tuple[str, int], reason: str) -> None:
    said = dial(network, address)
    assert isinstance(said, str)
    assert said.startswith(reason)


def test_a_connection_that_is_refused_is_tried_again(network: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens yet at the first try, nor at the second."""
    with listen("127.0.0.1", None) as closed:
        port = closed.getsockname()[1]
    waits, refused, call_later = [], queue.SimpleQueue[float](), network.call_later

    def note(delay: float, work: Callable[[], None]) -> None:
        if delay < sockets.CONNECT_TIMEOUT:
            refused.put(delay)
        call_later(delay, work)

    monkeypatch.setattr(network, "call_later", note)
    outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
    network.post(
        Dial(
            network,
            ("127.0.0.1", port),
            credentials=OURS,
            kind=DATA_LINK,
            peer=7,
            established=outcome.put,
            failed=outcome.put,
        ).start
    )
    waits = [refused.get(timeout=PATIENCE) for _ in range(2)]
    assert waits == [0.05, 0.1]
    came: queue.SimpleQueue[LinkSocket] = queue.SimpleQueue()
    server = Server(network, listen("127.0.0.1", (port, port)), OURS, DATA_LINK, lambda sock, peer: came.put(sock))
    server.start()
    for sock in (outcome.get(timeout=PATIENCE), came.get(timeout=PATIENCE)):
        assert isinstance(sock, socket.socket)
        sock.close()
    on(network, server.close)


def connection_in_time(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(address, 0.05)
    except TimeoutError:
        return None


def test_a_connection_that_times_out_is_tried_again(network: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener's queue is full, so the kernel drops each SYN, as a network may."""
    monkeypatch.setattr(sockets, "CONNECT_TIMEOUT", 0.02)
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT", 2 * PATIENCE)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        filling = [socket.create_connection(address, PATIENCE)]
        while (one_more := connection_in_time(address)) is not None:
            filling.append(one_more)
        outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
        dial = Dial(
            network, address, credentials=OURS, kind=DATA_LINK, peer=7, established=outcome.put, failed=outcome.put
        )
        network.post(dial.start)
        while on(network, lambda: dial._tries) < 3:
            pass
        monkeypatch.setattr(sockets, "CONNECT_TIMEOUT", PATIENCE)
        for _ in filling:
            full.accept()[0].close()
        full.settimeout(PATIENCE)
        while True:  # also those that the kernel let in of tries that were given up
            accepted, _ = full.accept()
            accepted.settimeout(PATIENCE)
            hello = accepted.recv(HELLO_BYTES, socket.MSG_WAITALL)
            if hello:
                break
            accepted.close()
        listener = Listener(OURS, DATA_LINK, bytes(32))
        accepted.sendall(listener.answer(hello))
        ours = outcome.get(timeout=PATIENCE)
        assert isinstance(ours, socket.socket)
        assert listener.check(accepted.recv(PROOF_BYTES, socket.MSG_WAITALL)) == 7
        for sock in [ours, accepted, *filling]:
            sock.close()


@pytest.mark.parametrize(
    ("credentials", "kind", "reason"),
    [
        (Credentials(b"k" * 16, 1, b"secret"), DATA_LINK, "the peer refused the connection: another job"),
        (
            Credentials(b"j" * 16, 2, b"secret"),
            DATA_LINK,
            "the peer refused the connection: attempt 2, but the listener has 1",
        ),
        (OURS, CONTROL_LINK, "the peer refused the connection: wrong kind of link"),
        (Credentials(b"j" * 16, 1, b"guess"), DATA_LINK, "the peer does not know this job's secret"),
    ],
)
def test_a_refusal_reaches_the_dialler_and_no_link_is_established(
    network: NetworkThread, door: Door, credentials: Credentials, kind: int, reason: str
) -> None:
    port = door.server.port
    assert dial(network, ("127.0.0.1", port), credentials, kind) == f"127.0.0.1:{port}: {reason}"
    assert door.came.empty()
    ours = dial(network, ("127.0.0.1", port))
    assert isinstance(ours, socket.socket), "the door still works"
    ours.close()
    door.came.get(timeout=PATIENCE)[0].close()


def stranger(door: Door) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", door.server.port), PATIENCE)
    sock.settimeout(PATIENCE)
    return sock


def test_a_stranger_gets_a_refusal_and_is_closed(door: Door) -> None:
    with stranger(door) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n".ljust(HELLO_BYTES, b" "))
        answer = b""
        while part := sock.recv(1000):
            answer += part
        assert answer.rstrip(b"\0") == b"\0this is not a Headgate link"
        assert len(answer) == ANSWER_BYTES
    assert door.came.empty()


def test_who_cannot_prove_itself_is_closed_without_a_word(door: Door) -> None:
    with stranger(door) as sock:
        sock.sendall(Dialler(OURS, DATA_LINK, 7, bytes(32)).hello)
        assert len(sock.recv(ANSWER_BYTES, socket.MSG_WAITALL)) == ANSWER_BYTES
        sock.sendall(b"x" * 32)
        assert sock.recv(1) == b""
    assert door.came.empty()


def test_a_handshake_byte_by_byte_succeeds(door: Door) -> None:
    with stranger(door) as sock:
        dialler = Dialler(OURS, DATA_LINK, 7, bytes(32))
        for at in range(HELLO_BYTES):
            sock.sendall(dialler.hello[at : at + 1])
            on(door.network, lambda: None)
        proof = dialler.prove(sock.recv(ANSWER_BYTES, socket.MSG_WAITALL))
        for at in range(len(proof)):
            sock.sendall(proof[at : at + 1])
            on(door.network, lambda: None)
        accepted, peer = door.came.get(timeout=PATIENCE)
        assert peer == 7
        accepted.close()


def test_what_follows_the_proof_is_left_for_the_link(door: Door) -> None:
    with stranger(door) as sock:
        dialler = Dialler(OURS, DATA_LINK, 7, bytes(32))
        sock.sendall(dialler.hello)
        sock.sendall(dialler.prove(sock.recv(ANSWER_BYTES, socket.MSG_WAITALL)) + b"first request")
        accepted, _ = door.came.get(timeout=PATIENCE)
        assert isinstance(accepted, socket.socket)
        accepted.settimeout(PATIENCE)
        assert accepted.recv(100) == b"first request"
        accepted.close()


def test_a_peer_that_leaves_during_the_handshake_is_reported(network: NetworkThread) -> None:
    with listen("127.0.0.1", None) as silent:
        silent.setblocking(True)
        outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
        address = silent.getsockname()
        network.post(
            Dial(
                network, address, credentials=OURS, kind=DATA_LINK, peer=7, established=outcome.put, failed=outcome.put
            ).start
        )
        accepted, _ = silent.accept()
        accepted.recv(HELLO_BYTES, socket.MSG_WAITALL)
        accepted.close()
        reason = outcome.get(timeout=PATIENCE)
    assert reason == f"127.0.0.1:{address[1]}: the peer closed the connection during the handshake"


def test_what_an_impostor_says_in_refusal_is_shown_without_its_control_characters(network: NetworkThread) -> None:
    """Nobody has proved anything yet."""
    with listen("127.0.0.1", None) as impostor:
        impostor.setblocking(True)
        outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
        address = impostor.getsockname()
        network.post(
            Dial(
                network, address, credentials=OURS, kind=DATA_LINK, peer=7, established=outcome.put, failed=outcome.put
            ).start
        )
        accepted, _ = impostor.accept()
        accepted.recv(HELLO_BYTES, socket.MSG_WAITALL)
        accepted.sendall(b"\0another job\x1b[2J\r\xc2\x9b\xff".ljust(ANSWER_BYTES, b"\0"))
        reason = outcome.get(timeout=PATIENCE)
        accepted.close()
    assert reason == rf"127.0.0.1:{address[1]}: the peer refused the connection: another job\x1b[2J\r\x9b" + "\ufffd"


def test_silence_ends_both_sides_of_a_handshake(network: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT", 0.01)
    door = Door(network)
    with stranger(door) as sock:
        assert sock.recv(1) == b"", "who says nothing is closed"
    door.close()
    with listen("127.0.0.1", None) as silent:
        address = silent.getsockname()
        assert dial(network, address) == f"127.0.0.1:{address[1]}: no answer in time"


def test_the_deadline_does_not_hit_a_link_that_was_made(
    network: NetworkThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(network, "call_later", lambda delay, work: later.append(work))
    door = Door(network)
    ours = dial(network, ("127.0.0.1", door.server.port))
    theirs, _ = door.came.get(timeout=PATIENCE)
    assert isinstance(ours, socket.socket)
    assert len(later) == 3
    for work in later:
        on(network, work)
    assert ours.fileno() > 0
    assert theirs.fileno() > 0
    ours.close()
    theirs.close()
    door.close()


def test_who_only_connects_is_dropped_when_too_many_do_and_others_come_in(
    network: NetworkThread, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MAX_HANDSHAKES", 3)
    silent = [stranger(door) for _ in range(5)]
    assert [sock.recv(1) for sock in silent[:2]] == [b"", b""], "the oldest are closed"
    ours = dial(network, ("127.0.0.1", door.server.port))
    assert isinstance(ours, socket.socket)
    door.came.get(timeout=PATIENCE)[0].close()
    assert silent[2].recv(1) == b""
    for sock in silent[3:]:
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
    for sock in [ours, *silent]:
        sock.close()


def test_short_lived_peers_leave_nothing_behind(network: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(network, "call_later", lambda delay, work: later.append(work))
    door = Door(network)
    for _ in range(5):
        with stranger(door) as sock:
            sock.sendall(bytes(HELLO_BYTES))
            assert len(sock.recv(ANSWER_BYTES, socket.MSG_WAITALL)) == ANSWER_BYTES
            assert sock.recv(1) == b""
    assert len(later) == 1
    assert on(network, lambda: not door.server._open)
    with stranger(door) as sock:
        while not on(network, lambda: door.server._open):
            pass
        on(network, door.server.close)
        assert sock.recv(1) == b"", "a server that closes drops those it is talking to"


class FullTable(socket.socket):
    """A listening socket of a process that has no descriptor left, until `full` is cleared."""

    full = True
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.full:
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_no_descriptor_left_does_not_burn_the_core(network: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(network, "call_later", lambda delay, work: later.append(work))
    table = FullTable(fileno=listen("127.0.0.1", None).detach())
    server = Server(network, table, OURS, DATA_LINK, lambda sock, peer: None)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE):
        while not later:
            on(network, bool)
        for _ in range(20):
            on(network, bool)  # a turn of the thread, which looks at all that is ready
        assert table.asked == 1
        table.full = False
        on(network, later.pop())
        while not later:  # the deadline of the handshake
            on(network, bool)
    on(network, server.close)
    on(network, server._listen)  # the pause ends after the close
    on(network, later.pop())


def test_a_server_that_was_never_started_can_be_closed(network: NetworkThread) -> None:
    server = Server(network, listen("127.0.0.1", None), OURS, DATA_LINK, lambda sock, peer: None)
    on(network, server.close)
