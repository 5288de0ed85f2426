"""A source of lines of text from a TCP server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.fetcher import Fetcher
from headgate.connectors.file_sources.line_parser import BadLine
from headgate.connectors.file_sources.text_source import TEXT, TextParser
from headgate.errors import ConfigError, SourceError
from headgate.state import shapes

#: How long connecting to the server may take, in seconds.
_CONNECT_TIMEOUT = 10.0
#: The most bytes of one read.
_READ_BYTES = 1 << 18
#: A longer line, in bytes, is an error: the server does not send text, and memory must stay bounded.
_LONGEST_LINE = 64 << 20


class SocketLinesSource(Source):
    """A source of text lines that one subtask reads from a socket; see `hg.sources.socket_lines`."""

    bounded = False
    replayable = False
    schema = TEXT

    def __init__(self, host: str, port: int) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ConfigError(f"socket_lines: port={port!r} must be a number from 1 to 65535")
        if not isinstance(host, str) or not host:
            raise ConfigError(f"socket_lines: host={host!r} must be a name or an address")
        self._address = host, port

    def check_position(self, position: Any) -> None:
        """Raise ValueError if `position` is not None, because the source has no positions."""
        shapes.nothing(position, "the position")

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of the socket for the first subtask, and readers without rows for the others."""
        return _SocketReader(self._address, context) if context.subtask == 0 else _NothingToRead()


class _NothingToRead(SourceReader):
    """The reader of all subtasks except the first. It has no rows."""

    finished = True

    def read(self) -> pa.RecordBatch | None:
        return None

    def position(self) -> None:
        """Return None, because the source is not replayable."""


class _SocketReader(SourceReader):
    """The reader of the first subtask. It connects and reads on its own thread."""

    def __init__(self, address: tuple[str, int], context: ReaderContext) -> None:
        self._server = f"{address[0]}:{address[1]}"
        self._address = address
        self._socket: socket.socket | None = None
        self._closed = False
        name = f"headgate-fetcher-{context.operator}[{context.subtask}]"
        self._fetcher = Fetcher(name, self._batches, context.wake)

    def read(self) -> pa.RecordBatch | None:
        batch = self._fetcher.take()
        self.finished = batch is None and self._fetcher.finished
        return batch

    def position(self) -> None:
        """Return None, because the source is not replayable."""

    def close(self) -> None:
        """Shut the socket down, which ends the thread's connect or read, and stop the thread."""
        self._closed = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._fetcher.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            with self._connect() as connection:
                connection.settimeout(None)
                yield from self._lines(connection)
        except OSError as error:
            if not self._closed:
                raise SourceError(f"{self._server}: {error}; check that the server runs and is reachable") from None

    def _connect(self) -> socket.socket:
        """Connect as `socket.create_connection` does, but let `close` interrupt the attempt. Raises OSError."""
        error = OSError("the host has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM):
            connection = self._socket = socket.socket(family, kind, protocol)
            try:
                # This thread sets `_socket` before it reads `_closed`. `close` sets `_closed` before it reads
                # `_socket`. Therefore either this thread sees `_closed`, or `close` finds the socket.
                if self._closed:
                    raise OSError("closed")
                connection.settimeout(_CONNECT_TIMEOUT)
                connection.connect(address)
                return connection
            except OSError as refused:
                connection.close()
                error = refused
        raise error

    def _lines(self, connection: socket.socket) -> Iterator[pa.RecordBatch]:
        """Yield one batch with the whole lines of each read, and at the end a batch with the remaining text."""
        parser, held, number = TextParser(), bytearray(), 0
        while not self._closed:
            data = connection.recv(_READ_BYTES)
            end = len(held) + data.rfind(b"\n") + 1 if b"\n" in data else 0
            held += data
            if not data and held:
                held += b"\n"
                end = len(held)
            if end:
                lines = bytes(held[:end])
                del held[:end]
                try:
                    yield parser.parse(lines)
                except BadLine as bad:
                    number += lines.count(b"\n", 0, bad.position) + 1
                    raise SourceError(f"{self._server}: line {number}: {bad.reason}") from None
                number += lines.count(b"\n")
            if not data:
                return
            if len(held) > _LONGEST_LINE:
                raise SourceError(f"{self._server}: line {number + 1} is longer than {_LONGEST_LINE} bytes")
