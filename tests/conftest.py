"""After every test: nothing of ours is left running. A test that leaks fails, and the leak has a name."""

from __future__ import annotations

import multiprocessing.resource_tracker
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

#: How long what is ending may take to end, seconds.
GRACE = 2.0

_ME = psutil.Process()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Threads named `headgate-*`, child processes and listening sockets that a test started are gone after it.

    What was there before it (a Spark session shared by a module) may stay, and so may what a library keeps for the life
    of the process: the helper process of multiprocessing, PySpark's JVM and its socket for accumulators.
    """
    threads, children, ports = _threads(), _children(), _listening()
    yield
    deadline = time.monotonic() + GRACE
    while (found := _left_over(threads, children, ports)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if found:
        pytest.fail("left behind: " + ", ".join(found), pytrace=False)


def _left_over(before: set[threading.Thread], children: set[int], ports: set[int]) -> list[str]:
    threads = sorted(f"thread {thread.name}" for thread in _threads() - before)
    processes = [f"process {pid} ({_command(pid)})" for pid in sorted(_children() - children - _kept_processes())]
    sockets = [f"listening socket on port {port}" for port in sorted(_listening() - ports - _kept_ports())]
    return threads + processes + sockets


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("headgate-")}


def _children() -> set[int]:
    return {child.pid for child in _ME.children()}


def _listening() -> set[int]:
    return {c.laddr.port for c in _ME.net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:200] or "not waited for"
    except psutil.Error:
        return "ended"


def _kept_processes() -> set[int]:
    tracker = getattr(multiprocessing.resource_tracker._resource_tracker, "_pid", None)
    gateway = getattr(_pyspark("_gateway"), "proc", None)
    return {pid for pid in (tracker, getattr(gateway, "pid", None)) if pid is not None}


def _kept_ports() -> set[int]:
    server = getattr(_pyspark("_active_spark_context"), "_accumulatorServer", None)
    address = getattr(server, "server_address", None)
    return {address[1]} if isinstance(address, tuple) else set()


def _pyspark(attribute: str) -> object:
    module = sys.modules.get("pyspark")
    return getattr(module.SparkContext, attribute, None) if module is not None else None
