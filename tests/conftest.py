"""Fixtures for all tests. After each test nothing that it started may still run: a leak fails it and is named."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing.resource_tracker
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import settings

from headgate.config import Config
from headgate.memory.network_pool import NetworkBufferPool
from headgate.runtime.launch import forks
from headgate.runtime.master import job
from headgate.runtime.master.jobmaster import JobMaster
from headgate.runtime.task import exchange_parts
from tests import examples, java_classes

if TYPE_CHECKING:
    from tests.kafka_broker import Broker
    from tests.postgres_server import Postgres
    from tests.s3_service import S3Service
    from tests.spark_session import SharedSpark

#: Seconds that threads, processes and sockets may take to end after a test.
GRACE = 30.0

#: Seconds that processes may take to start on an overloaded machine.
REGISTRATION_TIMEOUT = 180.0

# No job serves its page, which stays for the life of its process. Tests of the page turn it on.
os.environ.setdefault("HEADGATE_WEB", "off")

os.environ.setdefault("JDK_JAVA_OPTIONS", java_classes.options())

# The programs of tests multiply no matrices, but each would start threads for that.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Processes that tests start keep their compiled bytecode, even if this process does not: it saves them time.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""

# A shell that runs the tests in the background lets them ignore interrupts, but some tests send interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: The modules of the servers that stay for all tests of a process.
_SERVICES = ("azure_service", "kafka_broker", "postgres_server", "s3_service")
#: The number of parts of the planted bugs; `--planted slice` runs one of them.
_PARTS = 24

#: The longest tests. They start first, so that no process runs one alone at the end.
_LONGEST = ("tests/tidy/test_code_on_pages.py", "tests/tidy/test_site.py", "tests/demo/test_demo.py", "tests/spark/")

#: The most characters of a value in the name of a test: every process sends all names, and reports repeat them.
_LONGEST_VALUE = 60


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests that get megabytes."""
    if isinstance(val, str | bytes) and len(val) > _LONGEST_VALUE:
        return f"{val[:_LONGEST_VALUE]!r} of {len(val)}"
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "which planted bugs are hunted: all, or a part that changes with each commit"
    parser.addoption("--planted", choices=("all", "slice"), default="all", help=about)
    about = "how many examples Hypothesis tries: all, or a quarter; with some, cases that take turns do so"
    parser.addoption("--examples", choices=("all", "some"), default="all", help=about)


@pytest.hookimpl(trylast=True)  # after pytest-rerunfailures
def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis try the same examples on every run, without a verdict from a busy machine's clock."""
    _ask_at_once(config)
    if config.getoption("examples") == "some":
        examples.try_some()
    most = examples.examples(100)
    settings.register_profile("headgate", deadline=None, derandomize=True, max_examples=most)
    settings.load_profile("headgate")


def _ask_at_once(config: pytest.Config) -> None:
    """Let pytest-rerunfailures not wait before each test: its processes ask the first one for earlier failures.

    Otherwise the kernel keeps each question for 40 ms, until the other end has acknowledged what was sent before.
    """
    link = getattr(getattr(config, "failures_db", None), "sock", None)
    if link is not None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the groups in this hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that share a Spark session or a broker one after the other, and mark tests that plant a bug."""
    for item in items:
        if "shared_spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(f"spark {_master(item).partition('[')[0]}"))
        for server in ("kafka", "postgres"):
            if server in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(server))
        if getattr(item, "originalname", "").endswith("_is_caught"):
            item.add_marker(pytest.mark.planted)
    if config.getoption("planted") == "slice":
        _leave_a_slice(items, _turn(config.rootpath))
    if config.getoption("examples") == "some":
        _leave_the_turns(items, _turn(config.rootpath))
    items.sort(key=_turn_of)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector pass over all tests and modules, which stay, and look for nothing while they load."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let libraries find at the end that nothing of theirs is left."""
    gc.unfreeze()


def _turn_of(item: pytest.Item) -> tuple[bool, str]:
    """Return when the test runs: long ones first, and those on one Spark master together."""
    shares = "shared_spark" in getattr(item, "fixturenames", ())
    is_long = shares or item.get_closest_marker("planted") is not None or item.nodeid.startswith(_LONGEST)
    return not is_long, _master(item) if shares else ""


def _master(item: pytest.Item) -> str:
    """Return the test's Spark master, as far as its parameters say it. To change the master takes seconds."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return str(parameters.get("master", "local[3]" if parameters.get("place") == "spark" else "local[2]"))


def _leave_a_slice(items: list[pytest.Item], turn: int) -> None:
    """Remove all planted bugs from `items` except for the part `turn`."""
    items[:] = [
        item
        for item in items
        if item.get_closest_marker("planted") is None or zlib.crc32(item.name.encode()) % _PARTS == turn
    ]


def _leave_the_turns(items: list[pytest.Item], turn: int) -> None:
    """Leave of each test that is marked `turns(n)` every nth case, another one for each commit."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("turns") is not None and item.get_closest_marker("soak") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for each in cases.values():
        (parts,) = each[0].get_closest_marker("turns").args
        left_out.update(item for number, item in enumerate(each) if (number - turn) % min(parts, len(each)))
    items[:] = [item for item in items if item not in left_out]


def _turn(root: Path) -> int:
    """Return the part for this commit, so that every process chooses the same one."""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # no checkout
        return 0
    return zlib.crc32(commit.encode()) % _PARTS


class WatchedPool(NetworkBufferPool):
    """The network memory of a TaskManager in this process. A test must close it, and all buffers must be back then."""

    alive: list[WatchedPool] = []  # noqa: RUF012

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        WatchedPool.alive.append(self)

    def close(self) -> None:
        self.validate()
        super().close()
        if self in WatchedPool.alive:
            WatchedPool.alive.remove(self)


class PatientJobMaster(JobMaster):
    """A JobMaster that gives processes more time to start, unless the job sets the option itself."""

    def __init__(self, name: str, run: str, *, config: Config, **options: Any) -> None:
        if config.registration_timeout == Config().registration_timeout:
            config = dataclasses.replace(config, registration_timeout=REGISTRATION_TIMEOUT)
        super().__init__(name, run, config=config, **options)


@pytest.fixture(autouse=True)
def nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check after a test that its `headgate-*` threads, child processes, sockets and network memory are gone.

    What existed before the test may stay, such as a Spark session that a module shares. What a library keeps for the
    life of the process may stay too: the helper process of multiprocessing, PySpark's JVM and the sockets to it. The
    process that forks TaskManagers stays for a while.
    """
    monkeypatch.setattr(exchange_parts, "NetworkBufferPool", WatchedPool)
    monkeypatch.setattr(job, "JobMaster", PatientJobMaster)
    WatchedPool.alive.clear()
    threads, children, sockets = _threads(), _children(), _sockets()
    yield
    deadline = time.monotonic() + GRACE
    while (leaks := _left_over(threads, children, sockets)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if leaks:
        pytest.fail("the test left behind: " + ", ".join(leaks), pytrace=False)


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SharedSpark]:
    """The Spark session that tests share; see `SharedSpark`."""
    from tests.spark_session import SharedSpark  # imported late: most test processes do not need Spark

    shared = SharedSpark()
    yield shared
    shared.stop()


@pytest.fixture(scope="session")
def s3_service() -> Iterator[S3Service]:
    """The S3 service for all tests of this process; each test takes a bucket of its own."""
    from tests.s3_service import S3Service  # loads half a second of libraries

    service = S3Service()
    yield service
    service.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """The Kafka broker for all tests of this process; each test takes topics of its own."""
    from tests.kafka_broker import broker_or_skip

    broker = broker_or_skip()
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL server for all tests of this process; each test takes tables of its own."""
    from tests.postgres_server import postgres_or_skip

    server = postgres_or_skip()
    yield server
    server.close()


@pytest.fixture
def s3(s3_service: S3Service, monkeypatch: pytest.MonkeyPatch) -> S3Service:
    """The S3 service, to which the environment of this process and of its children points."""
    for name, value in s3_service.environ.items():
        monkeypatch.setenv(name, value)
    return s3_service


def _left_over(threads: set[threading.Thread], children: set[int], sockets: dict[int, str]) -> list[str]:
    names = sorted(f"thread {thread.name}" for thread in _threads() - threads)
    processes = [f"process {pid} ({_command(pid)})" for pid in sorted(_children() - children - _kept_processes())]
    new = {number for number, name in _sockets().items() if sockets.get(number) != name}
    opened = [f"socket {description}" for description in _tcp(new)]
    pools = [f"network memory, lent {pool.holders()}" for pool in WatchedPool.alive]
    return names + processes + opened + pools


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("headgate-")}


def _children() -> set[int]:
    """Return the child processes, and those of TaskManagers, which another child forks."""
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises at once if there is no child
        parents = [pid for pid in (os.getpid(), forks.server.pid) if pid is not None]
        return set().union(*map(_children_of, parents), *map(_children_of, parents))  # one look may miss some
    return set()


def _children_of(pid: int) -> set[int]:
    """Return the child processes. Linux lists them for each thread; psutil would read all processes of the machine.

    A child is missing if another one ends at the moment of the look.
    """
    found: set[int] = set()
    with suppress(OSError):  # the process has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found.update(map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()))
    return found


def _sockets() -> dict[int, str]:
    """Return the identity of each socket, by file descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found[int(name)] = target
    return found


def _tcp(numbers: set[int]) -> list[str]:
    """Describe the TCP sockets among these file descriptors. The kernel lists those of all programs, which is slow."""
    if not numbers:
        return []
    kept = _kept_ports()
    return [
        f"{c.laddr.port} {c.status}" + (f" to {c.raddr.port}" if c.raddr else "")
        for c in psutil.Process().net_connections("tcp")
        if c.fd in numbers and c.laddr.port not in kept and not (c.raddr and c.raddr.port in kept)
    ]


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:200] or "not waited for"
    except psutil.Error:
        return "ended"


def _kept_processes() -> set[int]:
    tracker = getattr(multiprocessing.resource_tracker._resource_tracker, "_pid", None)
    gateway = getattr(_pyspark("_gateway"), "proc", None)
    servers: set[int] = set().union(*(getattr(sys.modules.get(f"tests.{name}"), "PIDS", ()) for name in _SERVICES))
    return servers | {pid for pid in (tracker, getattr(gateway, "pid", None), forks.server.pid) if pid is not None}


def _kept_ports() -> set[int]:
    """Return the ports of PySpark (for accumulators and commands to the JVM), and of the services of tests."""
    server = getattr(_pyspark("_active_spark_context"), "_accumulatorServer", None)
    address = getattr(server, "server_address", None)
    commands = getattr(getattr(_pyspark("_gateway"), "gateway_parameters", None), "port", None)
    spark = {port for port in (address[1] if isinstance(address, tuple) else None, commands) if port is not None}
    services = (getattr(sys.modules.get(f"tests.{name}"), "PORTS", set()) for name in _SERVICES)
    return spark.union(*services)


def _pyspark(attribute: str) -> object:
    module = sys.modules.get("pyspark")
    return getattr(module.SparkContext, attribute, None) if module is not None else None
