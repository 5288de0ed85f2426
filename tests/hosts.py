"""Machines for tests: network namespaces, each with its own address, which share only an Ethernet.

The Ethernet is a tap device in each namespace and a process that carries frames between them. It needs the right to
make namespaces, and `/dev/net/tun`, but no other kind of device. The namespaces have no names, so they vanish with the
test's processes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_PR_SET_PDEATHSIG = 1
_DEVICE = "line"
#: Bytes of a frame's content: the switch needs less time for a few large frames.
_MTU = 60_000
_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """A machine: a network namespace with an address in a /24 network."""

    def __init__(self, address: str) -> None:
        """Make the namespace. Raises OSError if the system does not allow it."""
        self.address = address
        self.tap = -1
        self._namespace = -1
        try:
            _on_a_thread(self._make)
        except OSError:
            self.close()
            raise

    def _make(self) -> None:
        _check(_libc.unshare(_CLONE_NEWNET), "make a network namespace")
        self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.tap, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TAP | _IFF_NO_PI))
        _ip(f"addr add {self.address}/24 dev {_DEVICE}")
        _ip(f"link set {_DEVICE} mtu {_MTU} up")
        _ip("link set lo up")

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread in the namespace, and return its result; what it starts stays in the namespace."""

        def inside() -> T:
            _check(_libc.setns(self._namespace, _CLONE_NEWNET), "enter a network namespace")
            return work()

        return _on_a_thread(inside)

    def close(self) -> None:
        for descriptor in (self.tap, self._namespace):
            with suppress(OSError):
                os.close(descriptor)


@contextmanager
def hosts(*addresses: str) -> Iterator[list[Host]]:
    """Yield machines with these addresses on one Ethernet. Raises OSError if the system does not allow them."""
    machines: list[Host] = []
    try:
        for address in addresses:
            machines.append(Host(address))
        with _switch([host.tap for host in machines]):
            yield machines
    finally:
        for host in machines:
            host.close()


def why_no_hosts() -> str:
    """Return why the system does not allow machines; empty if it does."""
    try:
        with hosts("10.77.0.1"):
            return ""
    except OSError as error:
        return str(error)


@contextmanager
def _switch(taps: list[int]) -> Iterator[None]:
    command = [sys.executable, "-S", __file__, *map(str, taps)]
    process = subprocess.Popen(command, pass_fds=taps, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _on_a_thread(work: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"cannot {what}")


def _ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")


def carry(taps: list[int]) -> None:
    """Carry each frame to the tap behind which its destination was last seen, or else to all, until the parent ends."""

    behind: dict[bytes, int] = {}
    while True:
        for tap in select.select(taps, [], [])[0]:
            with suppress(BlockingIOError):
                while True:
                    frame = os.read(tap, _MTU + 64)
                    destination, source = frame[:6], frame[6:12]
                    behind[source] = tap
                    known = behind.get(destination)
                    for target in [known] if known is not None else [other for other in taps if other != tap]:
                        with suppress(OSError):  # the tap is down, or its queue is full: the frame is lost
                            os.write(target, frame)


if __name__ == "__main__":
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    carry([int(each) for each in sys.argv[1:]])
