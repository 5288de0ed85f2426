"""What happens around a job: other programs take the machine, a quota takes its processors, its network becomes slow.

Each is a context manager that prepares it and yields `Surroundings`. It raises OSError if the system does not allow it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.runtime.launch.forks import server
from tests.control_groups import control_group
from tests.hosts import Host
from tests.observe.delayed_links import delayed_links

#: Processors that a job may use while it has a quota.
QUOTA = 0.6
#: Seconds for which data and credits of a delayed channel are on their way, there and back.
ROUND_TRIP = 2.0
#: Bytes/s of a narrow network.
NARROW = 1_000_000
#: What a program does that takes a processor. It ends by itself if nobody ends it.
_TAKES = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def _nothing() -> None: ...


def _here(work: Callable[[], Any]) -> Any:
    return work()


@dataclass(frozen=True)
class Surroundings:
    """`begin` lets it happen, at the onset. `run` calls a function that starts and observes the job."""

    begin: Callable[[], None] = _nothing
    run: Callable[[Callable[[], Any]], Any] = _here


@contextmanager
def quiet() -> Iterator[Surroundings]:
    """Nothing happens."""
    yield Surroundings()


@contextmanager
def other_programs() -> Iterator[Surroundings]:
    """Four programs for each processor compute, at the job's priority."""
    programs: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        for _ in range(4 * (os.cpu_count() or 1)):
            programs.append(subprocess.Popen([sys.executable, "-S", "-c", _TAKES]))

    try:
        yield Surroundings(begin)
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


@contextmanager
def small_quota() -> Iterator[Surroundings]:
    """The processes of the job get a part of one processor. They are forks of a server that is in their group."""
    with control_group("cpu") as group:
        period = int((group / "cpu.cfs_period_us").read_text())
        server.start()
        (group / "cgroup.procs").write_text(str(server.pid))
        yield Surroundings(lambda: _write(group / "cpu.cfs_quota_us", int(QUOTA * period)))


@contextmanager
def far_processes() -> Iterator[Surroundings]:
    """All links between the job's TaskManagers, which must be threads, get a long delay."""
    with delayed_links() as lines:
        yield Surroundings(lambda: lines.delay(ROUND_TRIP))


@contextmanager
def one_far_link() -> Iterator[Surroundings]:
    """One link between two of the job's TaskManagers, which must be threads, gets a long delay."""
    with delayed_links() as lines:
        yield Surroundings(lambda: lines.delay(ROUND_TRIP, first=1))


@contextmanager
def narrow_network() -> Iterator[Surroundings]:
    """The loopback of a machine of its own carries few bytes/s. TaskManagers must be threads: they stay in it."""
    host = Host("10.77.0.1")
    try:
        _limit(host, 1000 * NARROW)
        yield Surroundings(lambda: _limit(host, NARROW), host.run)
    finally:
        host.close()


def _limit(host: Host, rate: int) -> None:
    """Let the loopback of a machine carry `rate` bytes/s."""
    command = f"tc qdisc replace dev lo root tbf rate {8 * rate} burst 100000 latency 200ms"
    done = host.run(lambda: subprocess.run(command.split(), capture_output=True, text=True, check=False))
    if done.returncode:
        raise OSError(f"{command}: {done.stderr.strip()}")


def _write(file: Path, value: int) -> None:
    file.write_text(str(value))
