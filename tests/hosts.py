"""Machines for tests: network namespaces, each with an address of its own and nothing else in common but an Ethernet.

The Ethernet is a tap device in each namespace and a process that carries frames between them; that needs the right to
make namespaces and `/dev/net/tun`, and no other kind of device. No namespace has a name: when the test's processes are
gone, so are they.
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
#: Bytes of a frame's content: large ones cost the switch less.
_MTU = 60_000
_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """A machine. Its address is in a network of 24 bits."""

    def __init__(self, address: str) -> None:
        """Raises OSError where there can be none."""
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
        """Run it on a thread there; its sockets, threads and processes stay there."""

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
    """Machines of these addresses on one Ethernet. Raises OSError where there can be none."""
    made: list[Host] = []
    try:
        for address in addresses:
            made.append(Host(address))
        with _switch([host.tap for host in made]):
            yield made
    finally:
        for host in made:
            host.close()


def why_no_hosts() -> str:
    """Empty where they can be made."""
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
    """Carry frames to the tap that their destination was last seen behind, others to all; until the maker is gone."""

    behind: dict[bytes, int] = {}
    while True:
        for tap in select.select(taps, [], [])[0]:
            with suppress(BlockingIOError):
                while True:
                    frame = os.read(tap, _MTU + 64)
                    destination, source = frame[:6], frame[6:12]
                    behind[source] = tap
                    found = behind.get(destination)
                    for target in [found] if found is not None else [each for each in taps if each != tap]:
                        with suppress(OSError):  # it is down, or its queue is full: the frame is lost
                            os.write(target, frame)


if __name__ == "__main__":
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    carry([int(each) for each in sys.argv[1:]])
