"""The control link between the driver and one TaskManager: messages, some with a binary payload, and a heartbeat.

Frame: `length u32 | text length u32 | text | payload`; `length` counts the whole frame. The text is a message; an empty
text is a heartbeat. Received bytes are never unpickled.
"""

from __future__ import annotations

import selectors
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import NetworkThread

_FRAME: Final = struct.Struct(">II")
MAX_FRAME: Final = 256 << 20
#: The most bytes of text in a frame.
MAX_TEXT: Final = 32 << 20
_READ: Final = 256 << 10
#: The reason for a loss when the cause is unknown.
CLOSED: Final = "its connection was closed"


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoding of one end's messages. `decode` raises ValueError for bytes that are not a message."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


class TooLong(ValueError):
    """A message that is too long: the other end would refuse it."""


class ControlLink:
    """One end of a control link. The driver and the TaskManager both use this class.

    The link is lost after `heartbeat_timeout` seconds without received bytes. `on_message` and `on_lost` (with the
    reason) run on the network thread. Any thread may call `send`.
    """

    def __init__(
        self,
        network: NetworkThread,
        sock: LinkSocket,
        *,
        heartbeat_timeout: float,
        codec: Codec,
        on_message: Callable[[Any, bytes], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._network = network
        self._socket = sock
        self._timeout = heartbeat_timeout
        self._codec = codec
        self._on_message = on_message
        self._on_lost = on_lost
        self._outgoing: deque[bytes | memoryview] = deque()
        self._incoming = bytearray()
        self._heard_at = time.monotonic()
        self._wants_write = False
        self._open = True

    def start(self) -> None:
        """Register the socket and begin the heartbeat. Call it on the network thread."""
        self._network.register(self._socket, selectors.EVENT_READ, self)
        self._beat()

    def send(self, message: Any, payload: bytes | memoryview = b"") -> None:
        """Queue a message. A lost link discards it. Raises TooLong."""
        self._send(self._codec.encode(message), payload)

    def _send(self, text: bytes, payload: bytes | memoryview = b"") -> None:
        length = _FRAME.size + len(text) + len(payload)
        if length > MAX_FRAME or len(text) > MAX_TEXT:
            raise TooLong(
                f"a message of {length} bytes, {len(text)} of them text, is too long; "
                f"at most {MAX_FRAME} bytes are allowed, and at most {MAX_TEXT} bytes of text"
            )
        if not self._open:
            return
        head = _FRAME.pack(length, len(text)) + text
        # One call, because other threads also send: nothing may come between the head and the payload.
        self._outgoing.extend((head, payload) if len(payload) else (head,))
        self._network.mark(self)

    def _beat(self) -> None:
        if not self._open:
            return
        if time.monotonic() - self._heard_at > self._timeout:
            self._lose(f"no heartbeat for {self._timeout:g} s")
            return
        self._send(b"")
        self._network.call_later(self._timeout / 4, self._beat)

    def on_marked(self) -> None:
        if self._open:
            self._write()

    def on_ready(self, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._read()
        if self._open:
            self._write()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(str(error))
            return
        if not data:
            self._lose(CLOSED)
            return
        self._heard_at = time.monotonic()
        self._incoming += data
        try:
            self._parse()
        except (ValueError, struct.error) as error:
            self._lose(f"it sent bytes that are not a message: {error}")

    def _parse(self) -> None:
        buffer = self._incoming
        while len(buffer) >= _FRAME.size:
            length, text_length = _FRAME.unpack_from(buffer)
            if not _FRAME.size + text_length <= length <= MAX_FRAME or text_length > MAX_TEXT:
                raise ValueError(f"a frame of {length} bytes, {text_length} of them text")
            if len(buffer) < length:
                return
            text_end = _FRAME.size + text_length
            text, payload = bytes(buffer[_FRAME.size : text_end]), bytes(buffer[text_end:length])
            del buffer[:length]
            if text:
                self._on_message(self._codec.decode(text), payload)
            elif payload:
                raise ValueError(f"a payload of {len(payload)} bytes without a message")

    def _write(self) -> None:
        while self._outgoing:
            piece = self._outgoing[0]
            try:
                sent = self._socket.send(piece)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(str(error))
                return
            if sent < len(piece):
                self._outgoing[0] = memoryview(piece)[sent:]
            else:
                self._outgoing.popleft()
        if bool(self._outgoing) != self._wants_write:
            self._wants_write = not self._wants_write
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._wants_write else 0)
            self._network.modify(self._socket, mask, self)

    def _lose(self, reason: str) -> None:
        if self._open:
            self.close()
            self._on_lost(reason)

    def close(self) -> None:
        """Send the queued messages that the kernel accepts now, and close. Call it on the network thread."""
        if self._open:
            self._open = False
            for _ in range(len(self._outgoing)):  # other threads may still add messages
                piece = self._outgoing.popleft()
                try:
                    if self._socket.send(piece) < len(piece):
                        break
                except OSError:
                    break
            self._network.unregister(self._socket)
            self._socket.close()
