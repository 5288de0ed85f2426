"""The two ends of a data link: one TCP connection per ordered pair of TaskManagers, for all channels of the pair.

The ends move bytes between a socket and the sans-IO `Sender` or `Receiver`. They also pass the notifications of other
threads on to the network thread.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from headgate.config import FlowControl
from headgate.errors import ExchangeError, NetworkMemoryFull
from headgate.memory.buffer import FileRegion
from headgate.protocol.backoff import Backoff
from headgate.protocol.data_plane import new_receiver, new_sender
from headgate.protocol.messages import ErrorResponse, OfChannel, encode
from headgate.protocol.outgoing import Outgoing
from headgate.protocol.receiver import ReceivingChannel
from headgate.protocol.sender import OpenView, SubpartitionView, Wrap
from headgate.protocol.throttle_message import StageSignal
from headgate.transport.link_socket import CONNECTION_CLOSED, LinkSocket
from headgate.transport.network_thread import Network
from headgate.transport.sockets import unacknowledged, unread
from headgate.transport.tcp_info import TcpInfo, read_tcp_info
from headgate.transport.tls import TlsSocket

#: The most bytes that the kernel collects before it wakes the thread. A quarter of the kernel's buffer is a second
#: limit: a full buffer would stop the sender.
_MOST_ASKED_FOR = 256 << 10
#: The most reads or writes of one link before the other links have their turn.
_TURNS = 8

Lost = Callable[[str], None]


class ProducerEnd:
    """The accepting end of a data link. It sends the data of subpartitions, as flow control allows.

    Create it with `producer_end`. `peer` is the number of the TaskManager at the other end.
    """

    def __init__(
        self,
        network: Network,
        sock: LinkSocket,
        *,
        peer: int,
        open_view: OpenView,
        lost: Lost,
        flow_control: FlowControl = FlowControl.CREDIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self._socket = sock
        self.peer = peer
        self._lost = lost
        self._notified: deque[int] = deque()
        self._sender = new_sender(flow_control, open_view, self._on_data, clock)
        self._outgoing = Outgoing()
        self._wants_write = False
        self._open = True
        self.bytes_sent_by_sendfile = 0

    def start(self) -> None:
        """Register the socket. Call it on the network thread."""
        self._network.register(self._socket, selectors.EVENT_READ, self)

    def _on_data(self, receiver: int) -> None:
        """Record that a subpartition has data. Any thread may call it.

        A task that rests sends the data itself. At full speed, the network thread sends while tasks compute.
        """
        self._notified.append(receiver)
        if self._sender.writer_rests(receiver):
            self._network.serve(self)
        else:
            self._network.mark(self)

    def on_marked(self) -> None:
        while self._notified:
            self._sender.data_available(self._notified.popleft())
        self._write()

    def on_ready(self, mask: int) -> None:
        if mask & selectors.EVENT_READ and self._open:
            self._read()
        self._write()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
            if not data:
                self._close(CONNECTION_CLOSED if not self._sender.closed else "")
                return
            self._sender.receive(data)
        except BlockingIOError:
            return
        except ExchangeError as error:
            self._refuse(error)
        except OSError as error:
            self._close(str(error))

    def _refuse(self, error: ExchangeError) -> None:
        """Close the link to a peer that broke the protocol. First send it the error, unless a frame is half sent."""
        if not self._outgoing:
            with contextlib.suppress(OSError):
                self._socket.send(encode(ErrorResponse(error.message)))
        self._close(error.message)

    def _write(self) -> None:
        outgoing = self._outgoing
        for _ in range(_TURNS):
            if not self._open:
                return
            if outgoing.is_writable:
                outgoing.add(*self._sender.next_frames())
            if not outgoing:
                break
            if not self._write_some():
                return
        else:
            if self._sender.has_output:
                self._network.mark(self)
        self._want_write(False)

    def _write_some(self) -> bool:
        """Write to the socket. Returns whether it accepted all bytes."""
        outgoing = self._outgoing
        has_file = outgoing.has_file
        while outgoing:
            region = outgoing.next_region
            try:
                sent = self._send_gathered() if region is None else self._send_from_file(region)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._close(str(error))
                return False
            outgoing.written(sent)
            if not sent or (outgoing and not has_file):
                self._want_write(True)
                return False
        return True

    def _send_gathered(self) -> int:
        """Send all pieces in memory with one system call. MSG_MORE puts a following file region in the same packets."""
        pieces = self._outgoing.next_write
        flags = socket.MSG_MORE if len(pieces) < len(self._outgoing) else 0
        return self._socket.sendmsg(pieces, [], flags)

    def _send_from_file(self, region: FileRegion) -> int:
        """Send a region of a file. The kernel copies the bytes from its page cache, not through this process."""
        sent = os.sendfile(self._socket.fileno(), region.descriptor, region.offset, region.size)
        if not sent:
            raise OSError(
                f"a file of the exchange is too short: it has no {region.size} bytes at offset {region.offset}; "
                "another process may have truncated it"
            )
        self.bytes_sent_by_sendfile += sent
        return sent

    def _want_write(self, wanted: bool) -> None:
        if wanted != self._wants_write:
            self._wants_write = wanted
            mask = selectors.EVENT_READ | selectors.EVENT_WRITE if wanted else selectors.EVENT_READ
            self._network.modify(self._socket, mask, self)

    def _close(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        self._network.unregister(self._socket)
        self._socket.close()
        self._sender.release()
        self._outgoing.release()
        if reason:
            self._lost(reason)

    def close(self) -> None:
        """Close the link and release all subpartitions, without reporting a loss."""
        self._close("")

    def follow(self, on_signal: Callable[[StageSignal], None]) -> None:
        """Call `on_signal`, on the network thread, with each throttle signal that arrives from the peer."""
        self._sender.on_signal = on_signal

    def wrap(self, view: SubpartitionView, wrapped: Wrap) -> bool:
        """Like `Sender.wrap`. Call it on the network thread."""
        return self._sender.wrap(view, wrapped)

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def bytes_sent(self) -> int:
        return self._sender.bytes_sent

    @property
    def tcp_info(self) -> TcpInfo | None:
        """The kernel's values for the connection, or None if the link is closed or the system has no TCP_INFO."""
        return read_tcp_info(self._socket)

    @property
    def writing(self) -> int:
        """The number of polled bytes that the socket has not accepted yet."""
        return self._outgoing.unwritten

    @property
    def kernel_bytes(self) -> int:
        """The number of written bytes that the peer's kernel has not acknowledged."""
        return unacknowledged(self._socket)


class EncryptedProducerEnd(ProducerEnd):
    """The accepting end under TLS. The kernel does not encrypt, so regions of files are read and sent from memory."""

    def __init__(
        self,
        network: Network,
        sock: TlsSocket,
        *,
        peer: int,
        open_view: OpenView,
        lost: Lost,
        flow_control: FlowControl = FlowControl.CREDIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            network, sock, peer=peer, open_view=open_view, lost=lost, flow_control=flow_control, clock=clock
        )
        self._tls = sock

    def _send_gathered(self) -> int:
        return self._tls.sendmsg(self._outgoing.pieces)

    def _send_from_file(self, region: FileRegion) -> int:
        return self._send_gathered()


def producer_end(
    network: Network,
    sock: LinkSocket,
    *,
    peer: int,
    open_view: OpenView,
    lost: Lost,
    flow_control: FlowControl = FlowControl.CREDIT,
    clock: Callable[[], float] = time.monotonic,
) -> ProducerEnd:
    """Create the accepting end for a plain socket or a TLS socket."""
    if isinstance(sock, TlsSocket):
        return EncryptedProducerEnd(
            network, sock, peer=peer, open_view=open_view, lost=lost, flow_control=flow_control, clock=clock
        )
    return ProducerEnd(network, sock, peer=peer, open_view=open_view, lost=lost, flow_control=flow_control, clock=clock)


class ConsumerEnd:
    """The dialling end of a data link. It receives data into segments, and sends requests and credit.

    It reads nothing while a frame waits for memory. With a `GuardedPool`, `on_ready` raises NetworkMemoryFull instead.
    `peer` is the number of the TaskManager at the other end.
    """

    def __init__(
        self,
        network: Network,
        peer: int,
        *,
        segment_size: int,
        lost: Lost,
        flow_control: FlowControl = FlowControl.CREDIT,
        new_backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._network = network
        self.peer = peer
        self._lost = lost
        self._receiver = new_receiver(flow_control, segment_size, new_backoff)
        self._socket: LinkSocket | None = None
        self._notified: deque[int] = deque()
        self._messages: deque[OfChannel] = deque()
        self._cancelled: deque[int] = deque()
        self._outgoing = b""
        self._watched = 0
        self._asked_for = 1
        self._most_asked_for = _MOST_ASKED_FOR

    def request(self, channel: ReceivingChannel) -> int:
        """Request a channel's subpartition. Returns the channel's number on this connection.

        Call it on the network thread, or before that thread starts. The connection may be established later.
        """
        return self._receiver.request(channel)

    def replace(self, channel: ReceivingChannel, by: ReceivingChannel) -> bool:
        """Like `Receiver.replace`. Call it on the network thread."""
        return self._receiver.replace(channel, by)

    def credit_available(self, receiver: int) -> None:
        """Record that a channel has new credit, or a buffer for its waiting frame. Any thread may call it."""
        self._notified.append(receiver)
        self._network.mark(self)

    def send(self, message: OfChannel) -> None:
        """Queue a channel's message to its producer. Any thread may call it."""
        self._messages.append(message)
        self._network.mark(self)

    def cancel(self, receiver: int) -> None:
        """Queue the cancellation of a channel. Any thread may call it."""
        self._cancelled.append(receiver)
        self._network.mark(self)

    def signal(self, signal: StageSignal) -> None:
        """Send a throttle's signal, or keep it until the connection is established. Call it on the network thread."""
        self._receiver.signal(signal)
        self._write()

    def established(self, sock: LinkSocket) -> None:
        """Start to use a connected socket. Runs on the network thread."""
        self._socket = sock
        self._watched = selectors.EVENT_READ
        buffer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # Linux reports twice the size
        self._most_asked_for = max(1, min(_MOST_ASKED_FOR, buffer // 4))
        self._network.register(sock, self._watched, self)
        self.on_marked()

    def on_marked(self) -> None:
        try:
            while self._notified:
                self._receiver.credit_available(self._notified.popleft())
            while self._messages:
                self._receiver.send(self._messages.popleft())
            while self._cancelled:
                self._receiver.cancel(self._cancelled.popleft())
        except ExchangeError as error:
            self._fail(error.message)
        self._write()

    def on_ready(self, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._read()
            for receiver, wait in self._receiver.take_retries():
                self._network.call_later(wait, partial(self._request_again, receiver))
        self._write()

    def _request_again(self, receiver: int) -> None:
        self._receiver.request_again(receiver)
        self._write()

    def _read(self) -> None:
        """Read the available bytes, at most `_TURNS` times, and then notify the channels."""
        receiver = self._receiver
        try:
            for _ in range(_TURNS):
                places = receiver.buffers()
                if self._socket is None or not places:
                    break
                room = sum(map(len, places))
                count = self._socket.recvmsg_into(places)[0]
                if not count:
                    self._fail(CONNECTION_CLOSED)
                    return
                receiver.received(count)
                if count < room:
                    break
        except BlockingIOError:
            pass
        except NetworkMemoryFull:
            self._disconnect()
            raise
        except (OSError, ExchangeError) as error:
            self._fail(str(error))
            return
        receiver.notify_channels()

    def _write(self) -> None:
        sock = self._socket
        if sock is None:
            return
        try:
            self._send(sock)
            if not self._outgoing:
                self._outgoing = self._receiver.data_to_send()
                self._send(sock)
        except OSError as error:
            self._fail(str(error))
            return
        self._watch(sock)

    def _send(self, sock: LinkSocket) -> None:
        """Send the queued bytes that the socket accepts."""
        if self._outgoing:
            try:
                sent = sock.send(self._outgoing)
            except BlockingIOError:
                return
            self._outgoing = self._outgoing[sent:]

    def _watch(self, sock: LinkSocket) -> None:
        """Register the socket for the reads and writes that are useful next."""
        self._ask_for(sock, self._receiver.missing)
        reads = 0 if self._receiver.is_stopped else selectors.EVENT_READ
        mask = reads | (selectors.EVENT_WRITE if self._outgoing else 0)
        if mask != self._watched:
            self._watched = mask
            self._network.modify(sock, mask, self)

    def _ask_for(self, sock: LinkSocket, missing: int) -> None:
        """Let the kernel wake the thread only when `missing` bytes have arrived. Fewer bytes complete no message."""
        wanted = min(missing, self._most_asked_for)
        if wanted != self._asked_for:
            self._asked_for = wanted
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def _fail(self, reason: str) -> None:
        if self._disconnect():
            self._lost(reason)

    def close(self) -> None:
        """Close the socket and recycle half-filled segments, without reporting a loss."""
        self._disconnect()

    def _disconnect(self) -> list[ReceivingChannel]:
        """Close the socket and return the channels that were not cancelled."""
        sock, self._socket = self._socket, None
        if sock is not None:
            self._network.unregister(sock)
            sock.close()
        return self._receiver.fail()

    def fail(self, reason: str) -> None:
        """Report the loss of the link, because its connection could not be made."""
        self._fail(reason)

    @property
    def bytes_received(self) -> int:
        return self._receiver.bytes_received

    @property
    def kernel_bytes(self) -> int:
        """The number of bytes that the kernel has received and this process has not read."""
        sock = self._socket  # one read, because the network thread may close the socket meanwhile
        return 0 if sock is None else unread(sock)
