"""TLS 1.3 for links: a socket that encrypts what it sends and decrypts what it receives, with the calls of a plain one.

OpenSSL works on two buffers in memory here and never on the socket itself. So it never waits for the kernel in the
middle of a record, each call to the kernel carries several records, and a key update is answered ahead of the next
bytes that are sent.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Final, cast

from headgate.memory.buffer import FileRegion, Piece
from headgate.protocol.handshake import Identity

#: Bytes that are encrypted in one step, four records; and bytes that one call takes from the kernel.
_STEP: Final = 64 << 10
#: More than a record that is not there in full can have received.
_PART_OF_A_RECORD: Final = 17 << 10
#: Answers to key updates that a peer who reads nothing may leave unsent, bytes.
_MOST_UNSENT: Final = 4 * _STEP


def client_context(identity: Identity) -> ssl.SSLContext:
    """For the side that dials. It checks that the peer has a certificate of the authority, for the name it dials."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def server_context(identity: Identity) -> ssl.SSLContext:
    """For the side that is dialled. It takes no peer without a certificate of the authority that may dial."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # no link is resumed
    return context


def _context(protocol: int, identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=identity.authority.decode())
    with _file_of(identity.certificate + identity.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """Python takes a private key from a file only. On Linux this one is memory of the process without a name in any
    file system: nothing of it outlives the process, and only who may read the process's memory can open it. Elsewhere
    it is a file in a folder of this user's alone, for a moment."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("headgate-identity", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with TemporaryDirectory(prefix="headgate-") as folder:
            path = os.path.join(folder, "identity")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            yield path


class TlsSocket:
    """A connected, non-blocking socket under TLS. As with a plain one, a short count or BlockingIOError means that the
    kernel takes or has no more. After a short count or BlockingIOError the next call to send must begin with the bytes
    that were not taken: some of them may be encrypted already.

    `hold(self, more)` is called after each read: whether bytes are left inside, which no selector sees.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        hold: Callable[[TlsSocket, bool], None],
        server_name: str | None = None,
    ) -> None:
        """Takes `sock` over. `server_name` makes this the side that dials, and is who must be on the other."""
        self._socket = sock
        self._hold = hold
        self._received, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._encrypted, server_name is None, server_name)
        self._unsent = b""  # encrypted, and not taken by the kernel
        self._plain_bytes = 0  # bytes of the caller's that are in it

    def shake_hands(self) -> bool:
        """Go on with TLS's handshake; returns whether it is over. Raises OSError when it has failed."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    self._flush()
                    if not self._receive():
                        raise ConnectionError("the peer closed the connection during the handshake") from None
                else:
                    break
        except BlockingIOError:
            return False
        except ssl.SSLError as error:
            raise _explained(error) from None
        self._flush()
        self._hold(self, True)  # the peer's first bytes may have come with the end of its handshake
        return True

    def send(self, data: bytes | memoryview) -> int:
        """As many bytes as the kernel takes, encrypted."""
        return self.sendmsg((data,))

    def sendmsg(self, pieces: Sequence[Piece], ancillary: Iterable[object] = (), flags: int = 0) -> int:
        """As many bytes of the pieces as the kernel takes, encrypted; regions of files are read. There is no ancillary
        data, and no flag has an effect."""
        taken = 0
        try:
            while self._unsent or (step := _gathered(pieces, taken)):
                if not self._unsent:
                    self._plain_bytes = self._write(step)
                self._flush()
                if self._unsent:
                    break
                taken += self._plain_bytes
                self._plain_bytes = 0
        except BlockingIOError:
            pass
        if self._unsent and not taken:
            raise BlockingIOError
        return taken

    def _write(self, data: bytes) -> int:
        try:
            return self._tls.write(data)
        except ssl.SSLError as error:
            raise _explained(error) from None

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes; none when the peer has ended the connection."""
        place = bytearray(size)
        (count,) = self.recvmsg_into((memoryview(place),))
        return bytes(place[:count])

    def recvmsg_into(self, places: Iterable[memoryview]) -> tuple[int]:
        """Fill the places in turn, as far as there are bytes; 0 when the peer has ended the connection."""
        count, has_more = 0, False
        try:
            for place in places:
                while len(place):
                    if not (read := self._read(place)):
                        has_more = True  # the next call tells the end
                        return (count,)
                    count += read
                    place = place[read:]
            has_more = self._received.pending > 0 or self._tls.pending() > 0
        except BlockingIOError:
            if not count:
                raise
        finally:
            self._hold(self, has_more)
        return (count,)

    def _read(self, place: memoryview) -> int:
        """Bytes of one record; 0 at the end of the connection. Raises BlockingIOError while it is not there in full."""
        while True:
            try:
                return cast(int, self._tls.read(len(place), cast(bytearray, place)))
            except ssl.SSLWantReadError:
                if not self._receive():
                    return 0
            except ssl.SSLError as error:
                raise _explained(error) from None

    def _receive(self) -> bool:
        """Take what the kernel has; returns False at the end of the connection. Raises BlockingIOError."""
        if self._encrypted.pending:
            self._answer()
        data = self._socket.recv(_STEP)
        self._received.write(data)
        return bool(data)

    def _answer(self) -> None:
        """OpenSSL answers a key update by itself. What the kernel does not take now goes ahead of what is sent next."""
        try:
            self._flush()
        except BlockingIOError:
            if len(self._unsent) > _MOST_UNSENT:
                raise ConnectionError("the peer asks for key updates and reads no answer") from None

    def _flush(self) -> None:
        """Give the kernel what is encrypted. Raises BlockingIOError when it takes nothing."""
        if self._encrypted.pending:
            self._unsent += self._encrypted.read()
        if self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def fileno(self) -> int:
        """-1 once it is closed."""
        return self._socket.fileno()

    def getsockopt(self, level: int, option: int) -> int:
        return self._socket.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """`SO_RCVLOWAT` counts the caller's bytes, of which a part may be here already, in a record that is not there
        in full."""
        if option == socket.SO_RCVLOWAT:
            value = max(1, value - _PART_OF_A_RECORD)
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Tells the peer, if the kernel takes it now. Again is harmless."""
        self._hold(self, False)
        with suppress(OSError):
            if not self._unsent and self.fileno() >= 0:
                with suppress(ssl.SSLError):  # the peer's own word is not waited for
                    self._tls.unwrap()
                self._flush()
        self._socket.close()


def _explained(error: ssl.SSLError) -> ConnectionError:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionError(f"the peer has no certificate of this attempt of the job: {error.verify_message}")
    if "alert" in reason:
        return ConnectionError(f"the peer ended the connection: TLS says {reason}")
    if reason in _NOT_TLS:
        return ConnectionError(f"the peer does not speak TLS 1.3: {reason}")
    return ConnectionError(f"what was received is not what the peer sent: TLS says {reason}")


#: OpenSSL's reasons for bytes that are no TLS at all.
_NOT_TLS: Final = ("wrong version number", "record layer failure", "http request", "unsupported protocol")

#: What links take: a plain socket or one under TLS.
LinkSocket = socket.socket | TlsSocket


def _gathered(pieces: Iterable[Piece], start: int) -> bytes:
    """The bytes of one step from position `start` on."""
    parts: list[bytes | memoryview] = []
    room = _STEP
    for piece in pieces:
        if start >= len(piece):
            start -= len(piece)
            continue
        part = _part(piece, start, room)
        parts.append(part)
        start, room = 0, room - len(part)
        if not room:
            break
    return b"".join(parts)


def _part(piece: Piece, start: int, size: int) -> bytes | memoryview:
    if not isinstance(piece, FileRegion):
        return memoryview(piece)[start : start + size]
    wanted = min(size, len(piece) - start)
    read = os.pread(piece.descriptor, wanted, piece.offset + start)
    if len(read) < wanted:
        raise OSError("a file of the exchange is shorter than what was written to it")
    return read
