"""The rate of loopback TCP between a bare sender and receiver on this machine: the baseline of `exchange`.

Two processes use one connection and preallocated buffers. One process calls `sendmsg` with a frame's header and 32 KiB,
and the other calls `recv_into` for the same bytes. The sockets are blocking, without Nagle delay, with explicit socket
buffers. No data is copied or decoded.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time

from headgate.runtime.launch.cores import own_cores

SEGMENT = 32 << 10
#: How many buffers each end uses in turn: as many as `exchange` may use for one channel.
BUFFERS = 64
SOCKET_BUFFER = 1 << 20
HEADER = struct.Struct(">IIBxxxI")
CONNECT_TIMEOUT = 30.0


def payload_rate(volume: int) -> float:
    """Send about `volume` bytes. Return the payload bytes/s from the first to the last byte."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(CONNECT_TIMEOUT)
        command = [sys.executable, "-P", "-m", __name__, str(listener.getsockname()[1]), str(volume)]
        with subprocess.Popen(command) as sender:
            try:
                connection, _ = listener.accept()
                with connection, own_cores(0, 2):
                    received, seconds = _receive(connection)
            finally:
                sender.kill()
    return received / seconds


def _receive(connection: socket.socket) -> tuple[int, float]:
    """Receive until the end. Return the payload bytes after the first frame, and the seconds that they took."""
    _tune(connection)
    frame = HEADER.size + SEGMENT
    buffers = [memoryview(bytearray(frame)) for _ in range(BUFFERS)]
    connection.recv_into(buffers[0], frame, socket.MSG_WAITALL)
    began, frames = time.perf_counter(), 0
    while connection.recv_into(buffers[frames % BUFFERS], frame, socket.MSG_WAITALL) == frame:
        frames += 1
    return frames * SEGMENT, time.perf_counter() - began


def _send(port: int, volume: int) -> None:
    buffers = [memoryview(bytearray(SEGMENT)) for _ in range(BUFFERS)]
    with socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT) as connection:
        connection.settimeout(None)
        _tune(connection)
        for index in range(volume // SEGMENT):
            header = HEADER.pack(HEADER.size + SEGMENT, index, 0, SEGMENT)
            segment = buffers[index % BUFFERS]
            sent = connection.sendmsg([header, segment])
            if sent < HEADER.size + SEGMENT:
                connection.sendall((header + bytes(segment))[sent:])


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)


if __name__ == "__main__":
    with own_cores(1, 2):  # as the two ends of `exchange` do
        _send(int(sys.argv[1]), int(sys.argv[2]))
