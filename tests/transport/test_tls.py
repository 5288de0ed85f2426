"""TLS under links: bytes through narrow kernels, key updates, and everybody who must not come in."""

from __future__ import annotations

import _ssl
import ctypes
import dataclasses
import os
import queue
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from headgate.memory.buffer import FileRegion
from headgate.protocol.handshake import CONTROL_LINK, DATA_LINK, HELLO_BYTES, Credentials, Dialler, Identity
from headgate.runtime.master import certificates
from headgate.transport import tls
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial, Server, listen
from headgate.transport.tls import TlsSocket, client_context, server_context
from tests.transport.conftest import OF_DRIVER, OF_TASKMANAGER, PATIENCE, PLAIN, on

OF_OTHER_DRIVER, OF_OTHER_TASKMANAGER = (
    dataclasses.replace(PLAIN, identity=identity) for identity in certificates.issue()
)


def identity_of(credentials: Credentials) -> Identity:
    assert credentials.identity is not None
    return credentials.identity


CLIENT = client_context(identity_of(OF_TASKMANAGER))
SERVER = server_context(identity_of(OF_TASKMANAGER))


class Wire:
    """Two ends that have shaken hands, over a kernel that takes little at a time; who has bytes inside."""

    def __init__(self) -> None:
        one, other = socket.socketpair()
        for sock in (one, other):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.held: set[TlsSocket] = set()
        self.client = TlsSocket(one, CLIENT, self._hold, "taskmanager")
        self.server = TlsSocket(other, SERVER, self._hold)
        while not (self.client.shake_hands() & self.server.shake_hands()):
            pass

    def _hold(self, sock: TlsSocket, has_more: bool) -> None:
        (self.held.add if has_more else self.held.discard)(sock)

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def carry(source: TlsSocket, target: TlsSocket, data: bytes, size: Callable[[], int]) -> bytes:
    """Send all of it in pieces, and read at the other end in pieces of the same sizes."""
    left, came = memoryview(data), b""
    while len(came) < len(data):
        step = size()
        pieces = [left[at : at + step] for at in range(0, min(len(left), 5 * step), step)]
        try:
            left = left[source.sendmsg(pieces) :]
        except BlockingIOError:
            pass
        places = [memoryview(bytearray(size())) for _ in range(3)]
        try:
            (count,) = target.recvmsg_into(places)
        except BlockingIOError:
            continue
        came += b"".join(map(bytes, places))[:count]
    return came


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_whatever_the_kernel_takes(wire: Wire, seed: int) -> None:
    chance = random.Random(seed)
    data = chance.randbytes(1_000_000)

    def size() -> int:
        return chance.choice((1, 100, 5000, 16 << 10, 70_000))

    assert carry(wire.client, wire.server, data, size) == data
    assert carry(wire.server, wire.client, data, size) == data
    assert wire.held == set(), "nothing is left inside"


def test_bytes_left_inside_are_announced_until_they_are_read(wire: Wire) -> None:
    assert wire.client.send(b"a record of some length") == 23
    place = memoryview(bytearray(8))
    assert wire.server.recvmsg_into([place]) == (8,)
    assert wire.server in wire.held
    assert wire.server.recv(100) == b" of some length"
    assert wire.server not in wire.held
    with pytest.raises(BlockingIOError):
        wire.server.recv(1)


def test_regions_of_files_leave_with_what_is_in_memory(wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "partition"
    data = os.urandom(200_000)
    path.write_bytes(data)
    with path.open("rb") as file:
        pieces = [b"head", FileRegion(file.fileno(), 100, 150_000), b"", memoryview(b"tail")]
        wanted, sent, came = b"head" + data[100:150_100] + b"tail", 0, b""
        while len(came) < len(wanted):
            if sent < len(wanted):
                try:
                    sent += wire.client.sendmsg(_after(pieces, sent))  # type: ignore[arg-type]
                except BlockingIOError:
                    pass
            try:
                came += wire.server.recv(50_000)
            except BlockingIOError:
                pass
        assert came == wanted
        with pytest.raises(OSError, match="a file of the exchange is too short"):
            wire.client.sendmsg([FileRegion(file.fileno(), 199_999, 2)])


def _after(pieces: list[bytes | memoryview | FileRegion], count: int) -> list[bytes | memoryview | FileRegion]:
    left = []
    for piece in pieces:
        if count < len(piece):
            left.append(piece.after(count) if isinstance(piece, FileRegion) else piece[count:])
        count = max(0, count - len(piece))
    return left


def update_keys(end: TlsSocket, asks_back: bool) -> None:
    """Python has no word for it: have OpenSSL send new keys with the next bytes, and ask the peer for its own."""
    library = ctypes.CDLL(_ssl.__file__)
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    connection = ctypes.c_void_p.from_address(id(end._tls._sslobj) + object.__basicsize__ + 8)  # type: ignore[attr-defined]  # behind its socket
    assert library.SSL_key_update(connection, int(asks_back)) == 1


@pytest.mark.parametrize("asks_back", [False, True])
def test_keys_may_change_at_any_time(wire: Wire, asks_back: bool) -> None:
    chance = random.Random(1)
    for _ in range(5):
        data = chance.randbytes(50_000)
        update_keys(wire.client, asks_back)
        assert carry(wire.client, wire.server, data, lambda: 5000) == data
        assert carry(wire.server, wire.client, data, lambda: 7000) == data


def test_an_answer_to_a_key_update_waits_behind_what_the_kernel_does_not_take(wire: Wire) -> None:
    """The server's kernel is full and half a record is unsent when it is asked for new keys."""
    data, sent = os.urandom(200_000), 0
    while True:
        try:
            sent += wire.server.send(data[sent:])
        except BlockingIOError:
            break
    assert wire.server._unsent
    update_keys(wire.client, asks_back=True)
    wire.client.send(b"x")
    assert wire.server.recv(10) == b"x"
    with pytest.raises(BlockingIOError):
        wire.server.recv(10)
    came = wire.client.recv(sent)
    came += carry(wire.server, wire.client, data[sent:], lambda: 9000) if sent < len(data) else b""
    assert came[: len(data)] == data


def send_on(end: TlsSocket, data: bytes) -> None:
    """Until something is raised."""
    while True:
        end.send(data)


def test_a_peer_that_asks_for_keys_and_reads_no_answer_is_given_up(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_MOST_UNSENT", 70_000)
    data = bytes(1 << 20)
    with pytest.raises(BlockingIOError):
        send_on(wire.server, data)

    def ask_and_read() -> None:
        for _ in range(10_000):
            update_keys(wire.client, asks_back=True)
            wire.client.send(b"x")
            assert wire.server.recv(1) == b"x"
            with pytest.raises(BlockingIOError):
                wire.server.recv(1)

    with pytest.raises(ConnectionError, match="requests key updates and reads no answer"):
        ask_and_read()


@pytest.mark.parametrize("says_so", [True, False])
def test_the_end_of_the_connection_comes_behind_all_bytes(wire: Wire, says_so: bool) -> None:
    wire.client.send(b"last words")
    if says_so:
        wire.client.close()
    else:
        wire.client._socket.close()
    assert wire.server.recv(4) == b"last"
    assert wire.server.recv(100) == b" words"
    assert wire.server in wire.held or says_so is False
    for _ in range(2):
        assert wire.server.recv(100) == b""


def test_one_changed_bit_ends_the_connection(wire: Wire) -> None:
    wire.client.send(b"transfer 100")
    raw = bytearray(wire.server._socket.recv(1000))
    raw[10] ^= 1
    wire.server._received.write(bytes(raw))
    with pytest.raises(
        ConnectionError, match="are not the bytes that the peer sent: TLS says decryption failed or bad record mac"
    ):
        wire.server.recv(100)
    with pytest.raises(ConnectionError, match="TLS says "):
        wire.server.send(b"no word more")


# ---- who comes in


class Door:
    """A server, and who came in."""

    def __init__(self, network: NetworkThread, credentials: Credentials, kind: int) -> None:
        self.network = network
        self.came: queue.SimpleQueue[tuple[LinkSocket, int]] = queue.SimpleQueue()
        accept = lambda sock, peer: self.came.put((sock, peer))  # noqa: E731
        self.server = Server(network, listen("127.0.0.1", None), credentials, kind, accept)
        self.server.start()
        self.address = "127.0.0.1", self.server.port

    def close(self) -> None:
        on(self.network, self.server.close)


MakeDoor = Callable[[Credentials, int], Door]


@pytest.fixture
def make_door(network: NetworkThread) -> Iterator[MakeDoor]:
    doors: list[Door] = []

    def make(credentials: Credentials, kind: int) -> Door:
        doors.append(Door(network, credentials, kind))
        return doors[-1]

    yield make
    for door in doors:
        door.close()


def dial(door: Door, credentials: Credentials, kind: int) -> LinkSocket | str:
    outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
    door.network.post(
        Dial(
            door.network,
            door.address,
            credentials=credentials,
            kind=kind,
            peer=7,
            established=outcome.put,
            failed=outcome.put,
        ).start
    )
    return outcome.get(timeout=PATIENCE)


def comes_in(door: Door, kind: int) -> None:
    """A TaskManager does, and bytes go both ways."""
    ours = dial(door, OF_TASKMANAGER, kind)
    assert isinstance(ours, TlsSocket)
    theirs, peer = door.came.get(timeout=PATIENCE)
    assert isinstance(theirs, TlsSocket)
    assert peer == 7
    for source, target in ((ours, theirs), (theirs, ours)):
        source.send(b"first bytes of the link")
        assert target.recv(100) == b"first bytes of the link"
    assert ours._tls.version() == theirs._tls.version() == "TLSv1.3"
    ours.close()
    theirs.close()


@pytest.mark.parametrize(("listener", "kind"), [(OF_TASKMANAGER, DATA_LINK), (OF_DRIVER, CONTROL_LINK)])
def test_those_of_one_attempt_meet(make_door: MakeDoor, listener: Credentials, kind: int) -> None:
    comes_in(make_door(listener, kind), kind)


#: The target, the dialler, the link kind, and why no link is established.
REFUSED = {
    "a survivor of another attempt": (
        OF_DRIVER, OF_OTHER_TASKMANAGER, CONTROL_LINK,
        "the peer has no certificate of this attempt of the job: ",
    ),
    "an impostor of a TaskManager": (
        OF_OTHER_TASKMANAGER, OF_TASKMANAGER, DATA_LINK,
        "the peer has no certificate of this attempt of the job: ",
    ),
    "a TaskManager that passes itself off as the driver": (
        OF_TASKMANAGER, OF_TASKMANAGER, CONTROL_LINK,
        "the peer has no certificate of this attempt of the job: Hostname mismatch",
    ),
    "a driver that dials": (
        OF_TASKMANAGER, OF_DRIVER, DATA_LINK,
        "the peer ended the connection: TLS says ",
    ),
    "no TLS at the dialler": (OF_DRIVER, PLAIN, CONTROL_LINK, "the peer closed the connection during the handshake"),
    "no TLS at the listener": (PLAIN, OF_TASKMANAGER, DATA_LINK, "the peer does not speak TLS 1.3: "),
    "another job, with our certificate": (
        OF_TASKMANAGER, dataclasses.replace(OF_TASKMANAGER, job=bytes(16)), DATA_LINK,
        "the peer refused the connection: another job",
    ),
    "another secret, with our certificate": (
        OF_TASKMANAGER, dataclasses.replace(OF_TASKMANAGER, secret=b"guess"), DATA_LINK,
        "the peer does not know this job's secret",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("listener", "dialler", "kind", "reason"), REFUSED.values(), ids=REFUSED)
def test_every_other_peer_is_refused(
    make_door: MakeDoor, listener: Credentials, dialler: Credentials, kind: int, reason: str
) -> None:
    door = make_door(listener, kind)
    said = dial(door, dialler, kind)
    assert isinstance(said, str)
    assert said.startswith(f"127.0.0.1:{door.server.port}: {reason}")
    assert door.came.empty()


def test_a_client_without_a_certificate_is_refused(make_door: MakeDoor) -> None:
    door = make_door(OF_TASKMANAGER, DATA_LINK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=identity_of(OF_TASKMANAGER).authority.decode())
    with (
        socket.create_connection(door.address, PATIENCE) as sock,
        context.wrap_socket(sock, server_hostname="taskmanager") as naked,
    ):
        naked.sendall(Dialler(PLAIN, DATA_LINK, 7, bytes(32)).hello)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            naked.recv(1)
    comes_in(door, DATA_LINK)


def test_tls_below_1_3_is_refused(make_door: MakeDoor) -> None:
    door = make_door(OF_TASKMANAGER, DATA_LINK)
    context = client_context(identity_of(OF_TASKMANAGER))
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(door.address, PATIENCE) as sock,
        pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
    ):
        context.wrap_socket(sock, server_hostname="taskmanager")
    assert door.came.empty()


def test_what_follows_the_handshake_at_once_is_left_for_the_link(make_door: MakeDoor) -> None:
    """The certificate's proof, the hello and the first request come in one packet each, as from a fast peer."""
    door = make_door(OF_TASKMANAGER, DATA_LINK)
    dialler = Dialler(OF_TASKMANAGER, DATA_LINK, 7, bytes(32))
    with (
        socket.create_connection(door.address, PATIENCE) as sock,
        CLIENT.wrap_socket(sock, server_hostname="taskmanager") as peer,
    ):
        peer.sendall(dialler.hello)
        answer = b""
        while len(answer) < 65:
            answer += peer.recv(65 - len(answer))
        peer.sendall(dialler.prove(answer) + b"first request")
        came, _ = door.came.get(timeout=PATIENCE)
        assert came.recv(100) == b"first request"
        came.close()


def test_a_silent_peer_or_one_without_tls_is_dropped_without_delaying_others(make_door: MakeDoor) -> None:
    door = make_door(OF_TASKMANAGER, DATA_LINK)
    silent, halting, plain = (socket.create_connection(door.address, PATIENCE) for _ in range(3))
    halting.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a client's first record
    plain.sendall(bytes(HELLO_BYTES))
    _rest(plain)
    comes_in(door, DATA_LINK)
    under_way = door.server._open
    assert on(door.network, lambda: len(under_way)) == 2
    on(door.network, lambda: under_way.update(dict.fromkeys(under_way, 0.0)))  # their deadlines have come
    on(door.network, door.server._end_late)
    assert _rest(silent) == _rest(halting) == b""
    for sock in (silent, halting, plain):
        sock.close()


def _rest(sock: socket.socket) -> bytes:
    said = b""
    try:
        while part := sock.recv(1000):
            said += part
    except ConnectionResetError:
        pass
    return said


@pytest.mark.usefixtures("impatient")
def test_a_listener_that_says_nothing_is_given_up(network: NetworkThread) -> None:
    with listen("127.0.0.1", None) as silent:
        outcome: queue.SimpleQueue[LinkSocket | str] = queue.SimpleQueue()
        address = silent.getsockname()
        network.post(
            Dial(
                network,
                address,
                credentials=OF_TASKMANAGER,
                kind=DATA_LINK,
                peer=7,
                established=outcome.put,
                failed=outcome.put,
            ).start
        )
        assert outcome.get(timeout=PATIENCE) == f"127.0.0.1:{address[1]}: no answer in time"


# ---- certificates


def test_certificates_are_of_one_attempt_and_are_good_on_machines_whose_clocks_differ() -> None:
    one, other = certificates.issue(), certificates.issue()
    assert one[0].authority == one[1].authority != other[0].authority
    assert len({identity.key for identity in (*one, *other)}) == 4
    for identity in one:
        found = x509.load_pem_x509_certificate(identity.certificate)
        age = time.time() - found.not_valid_before_utc.timestamp()
        assert 86_400 <= age < 86_400 + PATIENCE
        assert found.not_valid_after_utc.timestamp() - time.time() > 9 * 365 * 86_400


@pytest.fixture
def files_of_keys(monkeypatch: pytest.MonkeyPatch) -> list[tuple[os.stat_result, str]]:
    """The files from which Python reads keys, while it reads."""
    seen: list[tuple[os.stat_result, str]] = []
    load = ssl.SSLContext.load_cert_chain

    def look(context: ssl.SSLContext, path: str) -> None:
        seen.append((os.stat(path), path))
        load(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    return seen


def test_keys_are_in_no_log_and_on_no_disk(files_of_keys: list[tuple[os.stat_result, str]]) -> None:
    """While Python reads it, the key is in memory that only this user may open; then it is gone."""
    client_context(identity_of(OF_TASKMANAGER))
    [(status, path)] = files_of_keys
    assert (status.st_mode & 0o777, status.st_nlink) == (0o600, 0), "it has no name"
    assert path.startswith("/proc/self/fd/")
    assert not os.path.exists(path)
    assert "KEY" not in repr(OF_TASKMANAGER) + repr(OF_TASKMANAGER.identity) + str(OF_TASKMANAGER.identity)


def test_where_there_are_no_files_in_memory_a_key_is_in_a_folder_of_this_user_for_a_moment(
    files_of_keys: list[tuple[os.stat_result, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folders: list[int] = []
    mkdir = os.mkdir
    monkeypatch.setattr(os, "mkdir", lambda path, mode=0o777: (folders.append(mode), mkdir(path, mode)))
    client_context(identity_of(OF_TASKMANAGER))
    [(status, path)] = files_of_keys
    assert status.st_mode & 0o777 == 0o600
    assert path.startswith(str(tmp_path))
    assert folders == [0o700]
    assert list(tmp_path.iterdir()) == []
