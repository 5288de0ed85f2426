"""Set up the sockets of all links: connect or accept, then the handshake, with a deadline."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import selectors
import socket
import ssl
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headgate.errors import ConfigError, ExchangeError
from headgate.protocol import handshake
from headgate.protocol.handshake import CONTROL_LINK, DRIVER, TASKMANAGER, Credentials
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread
from headgate.transport.tls import TlsSocket, client_context, server_context

#: The size of the kernel's socket buffers, in bytes. It is fixed, so that it bounds the data in flight in the kernel.
SOCKET_BUFFER = 1 << 20
#: The most time, in seconds, for a new link: from the first try to connect, or the accept, to the end of the handshake.
HANDSHAKE_TIMEOUT = 10.0
#: The most time, in seconds, for one try to connect. The kernel repeats the SYN after 1 s. The next try uses another
#: port.
CONNECT_TIMEOUT = 3.0
#: The first and the longest wait before the next try, in seconds. The wait doubles each time.
RETRY_WAITS = (0.05, 1.0)
#: The most handshakes of one server at a time. A further handshake drops the oldest. Silent peers therefore use a
#: limited number of descriptors, and other peers can still connect.
MAX_HANDSHAKES = 512
#: The time, in seconds, without accepting after the process or the kernel has run out of resources.
ACCEPT_PAUSE = 0.1


def listen(host: str, ports: tuple[int, int] | None) -> socket.socket:
    """Return a listening socket on any free port, or on the first free port of a range. Raises ConfigError."""
    last: OSError | None = None
    for port in [0] if ports is None else range(ports[0], ports[1] + 1):
        try:
            sock = socket.create_server((host, port), backlog=128)
        except OSError as error:
            last = error
            continue
        sock.setblocking(False)
        return sock
    hint = "check bind_host"
    if ports is not None and last is not None and last.errno == errno.EADDRINUSE:
        hint = f"port_range={ports} has no free port; the driver and each TaskManager on its machine need one each"
    raise ConfigError(f"cannot listen on {host}: {last}; {hint}")


def reached_at(bind_host: str | None, host: str) -> str:
    """Return the address to announce to peers: `bind_host`, or `host` when the socket is bound to all addresses."""
    return host if bind_host in (None, "0.0.0.0", "::") else str(bind_host)


def is_on_loopback(sock: socket.socket) -> bool:
    """Return whether only this machine can reach a listening socket."""
    return ipaddress.ip_address(sock.getsockname()[0]).is_loopback


def tune(sock: socket.socket) -> None:
    """Make a socket non-blocking, without Nagle's delay, and with kernel buffers of `SOCKET_BUFFER` bytes."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)


def unacknowledged(sock: LinkSocket) -> int:
    """Return the number of bytes in the kernel's send buffer, unsent or not acknowledged; 0 for a closed socket."""
    return _queued(sock, termios.TIOCOUTQ)


def unread(sock: LinkSocket) -> int:
    """Return the number of bytes in the kernel's receive buffer; 0 for a closed socket."""
    return _queued(sock, termios.FIONREAD)


def _queued(sock: LinkSocket, queue: int) -> int:
    """Return the number of bytes in a kernel queue. Any thread may call it: while a socket is closed, it returns 0."""
    count = bytearray(4)
    with suppress(OSError, ValueError):
        fcntl.ioctl(sock, queue, count)
    return int.from_bytes(count, sys.byteorder)


def _drop(network: NetworkThread, sock: LinkSocket) -> None:
    """Close a socket, whether or not it is registered."""
    network.unregister(sock)
    sock.close()


#: Called with the socket and the peer's number when the handshake has succeeded.
Established = Callable[[LinkSocket, int], None]
Failed = Callable[[str], None]


class Dial:
    """The dialling side of a new link. It connects, does the handshake and calls `established` or `failed`.

    It runs on the network thread. If a connection is refused or times out, it tries again until the deadline. One lost
    packet therefore does not fail the attempt of a job. After a failed handshake it does not try again. `peer` is this
    side's own number.
    """

    def __init__(
        self,
        network: NetworkThread,
        address: tuple[str, int],
        *,
        credentials: Credentials,
        kind: int,
        peer: int,
        established: Callable[[LinkSocket], None],
        failed: Failed,
    ) -> None:
        self._network = network
        self._address = address
        self._identity = credentials.identity
        self._server_name = DRIVER if kind == CONTROL_LINK else TASKMANAGER
        self._established = established
        self._failed = failed
        self._dialler = handshake.Dialler(credentials, kind, peer, os.urandom(handshake.NONCE_BYTES))
        self._answer = b""
        self._done = False
        self._wait = RETRY_WAITS[0]
        self._tries = 0
        self._late = ""
        self._socket: LinkSocket | None = None
        self._is_connected = False
        self._step: Callable[[], None]

    def start(self) -> None:
        """Start to connect, with `HANDSHAKE_TIMEOUT` as the deadline."""
        self._network.call_later(HANDSHAKE_TIMEOUT, lambda: self._fail(self._late))
        self._connect()

    def _connect(self) -> None:
        if self._done:
            return
        self._tries += 1
        self._late = "no answer in time"
        try:
            self._socket = sock = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
            tune(sock)
            code = sock.connect_ex(self._address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except (OSError, ValueError, OverflowError) as error:  # there is no such host, address or port
            self._connect_again(str(error))
            return
        self._step = partial(self._on_connected, sock)
        self._network.register(sock, selectors.EVENT_WRITE, self)
        self._network.call_later(CONNECT_TIMEOUT, partial(self._give_up, sock))

    def _give_up(self, sock: socket.socket) -> None:
        if sock is self._socket and not self._is_connected and not self._done:
            self._connect_again("no answer in time")

    def _connect_again(self, reason: str) -> None:
        """Try again after a wait, because the latest try failed."""
        self._late = reason if self._tries == 1 else f"{reason} ({self._tries} times)"
        self._drop()
        wait, self._wait = self._wait, min(2 * self._wait, RETRY_WAITS[1])
        self._network.call_later(wait, self._connect)

    def on_ready(self, mask: int) -> None:
        try:
            self._step()
        except BlockingIOError:
            return
        except (OSError, ExchangeError) as error:
            self._fail(str(error))

    def _on_connected(self, sock: socket.socket) -> None:
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._connect_again(str(OSError(error, os.strerror(error))))
            return
        self._is_connected = True
        if self._identity is None:
            self._say_hello(sock)
            return
        self._network.unregister(sock)
        self._socket = tls = TlsSocket(sock, client_context(self._identity), self._network.hold, self._server_name)
        self._step = partial(self._secure, tls)
        self._network.register(tls, selectors.EVENT_READ, self)
        self._secure(tls)

    def _secure(self, tls: TlsSocket) -> None:
        if tls.shake_hands():
            self._say_hello(tls)

    def _say_hello(self, sock: LinkSocket) -> None:
        self._step = partial(self._on_answer, sock)
        sock.send(self._dialler.hello)  # it fits into the empty send buffer
        self._network.modify(sock, selectors.EVENT_READ, self)

    def _on_answer(self, sock: LinkSocket) -> None:
        data = sock.recv(handshake.ANSWER_BYTES - len(self._answer))
        if not data:
            raise OSError("the peer closed the connection during the handshake")
        self._answer += data
        if len(self._answer) == handshake.ANSWER_BYTES:
            sock.send(self._dialler.prove(self._answer))
            self._done = True
            self._network.unregister(sock)
            self._established(sock)

    def on_marked(self) -> None: ...

    def _fail(self, reason: str) -> None:
        if not self._done:
            self._done = True
            self._drop()
            self._failed(f"{self._address[0]}:{self._address[1]}: {reason}")

    def _drop(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            _drop(self._network, sock)


class Server:
    """The listening side for links of one kind.

    It calls `established` for each link whose peer has proved that it knows the job's secret. Handshakes have a
    deadline, and at most `MAX_HANDSHAKES` run at a time.
    """

    def __init__(
        self, network: NetworkThread, sock: socket.socket, credentials: Credentials, kind: int, established: Established
    ) -> None:
        self._network = network
        self._socket = sock
        self._credentials = credentials
        self._context = None if credentials.identity is None else server_context(credentials.identity)
        self._kind = kind
        self._established = established
        self._open: dict[_Accept, float] = {}  # current handshakes and their deadlines, the earliest first
        self._watches = False
        self.port: int = sock.getsockname()[1]

    def start(self) -> None:
        """Start to accept links. Any thread may call it."""
        self._network.post(self._listen)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._network.register(self._socket, selectors.EVENT_READ, self)

    def on_ready(self, mask: int) -> None:
        try:
            sock, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):  # the peer has already closed the connection
            return
        except OSError:
            # No descriptor or memory is free. Without a pause the thread would try again and again, at full load.
            self._network.unregister(self._socket)
            self._network.call_later(ACCEPT_PAUSE, self._listen)
            return
        tune(sock)
        if len(self._open) >= MAX_HANDSHAKES:
            next(iter(self._open)).end()
        accept = _Accept(
            self._network,
            sock,
            context=self._context,
            credentials=self._credentials,
            kind=self._kind,
            established=self._established,
            over=self._open.pop,
        )
        self._open[accept] = time.monotonic() + HANDSHAKE_TIMEOUT
        accept.start()
        self._watch()

    def _watch(self) -> None:
        """Start one timer for all handshakes. One timer per handshake would become too many with short-lived peers."""
        if self._open and not self._watches:
            self._watches = True
            self._network.call_later(next(iter(self._open.values())) - time.monotonic(), self._end_late)

    def _end_late(self) -> None:
        self._watches = False
        now = time.monotonic()
        for accept in [accept for accept, deadline in self._open.items() if deadline <= now]:
            accept.end()
        self._watch()

    def on_marked(self) -> None: ...

    def close(self) -> None:
        """Stop accepting, end all handshakes and close the socket. Call it on the network thread.

        A server that was not started may be closed too.
        """
        for accept in list(self._open):
            accept.end()
        _drop(self._network, self._socket)


class _Accept:
    """The listening side of one handshake.

    It sends the reason to a refused peer, if there is a reason, and closes the socket. `over` is called when the
    handshake has succeeded or failed.
    """

    def __init__(
        self,
        network: NetworkThread,
        sock: socket.socket,
        *,
        context: ssl.SSLContext | None,
        credentials: Credentials,
        kind: int,
        established: Established,
        over: Callable[[_Accept], object],
    ) -> None:
        self._network = network
        self._tls = None if context is None else TlsSocket(sock, context, network.hold)
        self._socket = self._tls or sock
        self._is_secure = context is None
        self._listener = handshake.Listener(credentials, kind, os.urandom(handshake.NONCE_BYTES))
        self._established = established
        self._over = over
        self._data = b""
        self._wanted = handshake.HELLO_BYTES
        self._answered = False
        self._done = False

    def start(self) -> None:
        self._network.register(self._socket, selectors.EVENT_READ, self)

    def on_ready(self, mask: int) -> None:
        try:
            if self._tls is not None and not self._is_secure:
                self._is_secure = self._tls.shake_hands()
                return
            data = self._socket.recv(self._wanted - len(self._data))
            if not data:
                raise OSError("closed")
            self._data += data
            if len(self._data) == self._wanted:
                self._on_part()
        except BlockingIOError:
            return
        except (OSError, ExchangeError):
            self.end()

    def _on_part(self) -> None:
        part, self._data = self._data, b""
        if not self._answered:
            self._answered = True
            self._wanted = handshake.PROOF_BYTES
            self._socket.send(self._listener.answer(part))
            if self._listener.refused is not None:
                self.end()
            return
        peer = self._listener.check(part)
        self._done = True
        self._over(self)
        self._network.unregister(self._socket)
        self._established(self._socket, peer)

    def on_marked(self) -> None: ...

    def end(self) -> None:
        """Close the socket, if the handshake is still in progress."""
        if not self._done:
            self._done = True
            self._over(self)
            _drop(self._network, self._socket)
