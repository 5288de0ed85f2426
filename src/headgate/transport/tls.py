"""TLS 1.3 for links: a socket that encrypts and decrypts, with the methods of a plain socket.

OpenSSL works on two buffers in memory and never on the socket itself. It therefore never waits for the kernel in the
middle of a record. Each call to the kernel carries several records. The answer to a key update goes ahead of the next
bytes that are sent.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Final, cast, overload

from headgate.memory.buffer import FileRegion, Piece
from headgate.protocol.handshake import Identity

#: The most bytes that one step encrypts (four records), and that one call reads from the kernel.
_STEP: Final = 64 << 10
#: An upper bound for the received bytes of an incomplete record.
_PART_OF_A_RECORD: Final = 17 << 10
#: The most bytes of unsent answers to key updates, for a peer that does not read.
_MOST_UNSENT: Final = 4 * _STEP


def client_context(identity: Identity) -> ssl.SSLContext:
    """Return the context of the dialling side. It refuses peers whose name the authority has not certified."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def server_context(identity: Identity) -> ssl.SSLContext:
    """Return the context of the listening side. It refuses peers without a client certificate of the authority."""
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
    """Yield the path of a temporary file with `data`, because Python loads a private key only from a file.

    On Linux the file is in memory, without a name in any file system. It disappears with this process. Another process
    can open it only if it may read this process's memory. On other systems the file is short-lived, in a folder that
    only this user can open.
    """
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
    """A connected, non-blocking socket under TLS.

    A short count or BlockingIOError has the same meaning as with a plain socket: the kernel accepts no more bytes, or
    has no more bytes. The next send must then begin with the first byte that was not accepted. Some of these bytes may
    already be encrypted.

    `hold(self, more)` is called after each read. `more` says whether received bytes remain in memory, where a selector
    does not see them.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        hold: Callable[[TlsSocket, bool], None],
        server_name: str | None = None,
    ) -> None:
        """Wrap `sock` and own it.

        If `server_name` is given, this side has dialled, and the peer's certificate must carry this name.
        """
        self._socket = sock
        self._hold = hold
        self._received, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._encrypted, server_name is None, server_name)
        self._unsent = b""  # encrypted bytes that the kernel has not accepted
        self._plain_bytes = 0  # the number of the caller's bytes in `_unsent`

    def shake_hands(self) -> bool:
        """Continue the TLS handshake. Returns whether it is complete. Raises OSError when it has failed."""
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
        """Encrypt `data` and send it, as far as the kernel accepts it. Returns the number of accepted bytes."""
        return self.sendmsg((data,))

    def sendmsg(self, pieces: Sequence[Piece], ancillary: Iterable[object] = (), flags: int = 0) -> int:
        """Encrypt the pieces and send them, as far as the kernel accepts them. Returns the number of accepted bytes.

        The method reads the regions of files into memory. `ancillary` and `flags` have no effect.
        """
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
        """Return up to `size` bytes. The result is empty when the peer has ended the connection.

        Raises BlockingIOError if no byte is there yet.
        """
        place = bytearray(size)
        (count,) = self.recvmsg_into((memoryview(place),))
        return bytes(place[:count])

    def recvmsg_into(self, places: Iterable[memoryview]) -> tuple[int]:
        """Fill the places in order and return (number of bytes,): (0,) when the peer has ended the connection."""
        count, has_more = 0, False
        try:
            for place in places:
                while len(place):
                    if not (read := self._read(place)):
                        has_more = True  # the next call reports the end
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
        """Read bytes of one record into `place` and return their number; 0 at the end of the connection.

        Raises BlockingIOError while the record is incomplete.
        """
        while True:
            try:
                return cast(int, self._tls.read(len(place), cast(bytearray, place)))
            except ssl.SSLWantReadError:
                if not self._receive():
                    return 0
            except ssl.SSLError as error:
                raise _explained(error) from None

    def _receive(self) -> bool:
        """Read bytes from the kernel. Returns False at the end of the connection.

        Raises BlockingIOError when the kernel has no bytes.
        """
        if self._encrypted.pending:
            self._answer()
        data = self._socket.recv(_STEP)
        self._received.write(data)
        return bool(data)

    def _answer(self) -> None:
        """Send OpenSSL's answer to a key update. If the kernel refuses a part, this part goes ahead of later bytes."""
        try:
            self._flush()
        except BlockingIOError:
            if len(self._unsent) > _MOST_UNSENT:
                raise ConnectionError(
                    f"the peer requests key updates and reads no answer: {len(self._unsent)} bytes wait for it"
                ) from None

    def _flush(self) -> None:
        """Send the encrypted bytes that the kernel accepts. Raises BlockingIOError when it accepts none."""
        if self._encrypted.pending:
            self._unsent += self._encrypted.read()
        if self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def fileno(self) -> int:
        """Return the socket's descriptor, or -1 for a closed socket."""
        return self._socket.fileno()

    @overload
    def getsockopt(self, level: int, option: int) -> int: ...

    @overload
    def getsockopt(self, level: int, option: int, size: int) -> bytes: ...

    def getsockopt(self, level: int, option: int, size: int | None = None) -> int | bytes:
        """Return an option of the socket: a number, or a structure of up to `size` bytes."""
        if size is None:
            return self._socket.getsockopt(level, option)
        return self._socket.getsockopt(level, option, size)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket.

        The method lowers `SO_RCVLOWAT` by the size of a record. Some of the wanted bytes may already be in memory, in
        an incomplete record.
        """
        if option == socket.SO_RCVLOWAT:
            value = max(1, value - _PART_OF_A_RECORD)
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the socket. The peer gets TLS's close message if the kernel accepts it now.

        A second call changes nothing.
        """
        self._hold(self, False)
        with suppress(OSError):
            if not self._unsent and self.fileno() >= 0:
                with suppress(ssl.SSLError):  # do not wait for the peer's close message
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
    return ConnectionError(f"the received bytes are not the bytes that the peer sent: TLS says {reason}")


#: OpenSSL's reasons for bytes that are not TLS.
_NOT_TLS: Final = ("wrong version number", "record layer failure", "http request", "unsupported protocol")


def _gathered(pieces: Iterable[Piece], start: int) -> bytes:
    """Return the bytes of one encryption step, starting at position `start` of the pieces."""
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
        raise OSError(
            f"a file of the exchange is too short: {len(read)} of {wanted} bytes at offset {piece.offset + start}; "
            "another process may have truncated it"
        )
    return read
