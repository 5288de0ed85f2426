"""A schedule of faults, drawn from a seed, for a job from Kafka through keyed windows into a sink.

Each fault strikes at a random moment, or at a line of a commit: there the driver stops itself, and the fault comes.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil

from tests.kafka.result_places import PLACES, Place, Window
from tests.kafka.window_job import PROGRAM, TASKMANAGERS, WINDOW
from tests.kafka_broker import Broker, broker_or_skip
from tests.relay import Relay
from tests.runtime.jobs import eventually, pids

#: The rows of a piece of the input, and the milliseconds between two rows.
PIECE, STEP = 2_000, 1
KEYS, PARTITIONS = 7, 3
START = 1_714_557_600_000
PATIENCE = 120.0

Fault = Callable[[], AbstractContextManager[None]]


class Schedule:
    """One run of the job. `struck` are the faults that have struck, in order."""

    def __init__(self, broker: Broker, folder: Path, seed: int, into: str, relay: Relay | None = None) -> None:
        self._broker, self._relay, self._folder = broker, relay, folder
        self._chance = random.Random(f"{into} {seed}")
        self._servers = broker.servers if relay is None else f"127.0.0.1:{relay.port}"
        self._topic = broker.topic(PARTITIONS)
        self._place: Place = PLACES[into](broker, self._servers, folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._parallelism = 0
        self._writer: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._pieces = 0
        self._log = folder / "log"
        self.struck: list[str] = []

    @property
    def faults(self) -> dict[str, Fault]:
        """The faults, each for the time of a block."""
        cut = {} if self._relay is None else {"connections to the broker are cut": self._relay.cut}
        return {
            "a TaskManager is killed": self._taskmanager_killed,
            "the driver is killed": self._driver_killed,
            "the disk is full": self._disk_full,
            "the broker is paused": self._broker_paused,
            "the broker is killed": self._broker_killed,
            "the broker restarts": self._broker_restarted,
            **cut,
            **self._place.faults,
        }

    def run(self, faults: int) -> None:
        """Strike so many random faults, every second one in a commit. Raises AssertionError if a row is wrong."""
        kinds = list(self.faults)
        self.run_faults([(self._chance.choice(kinds), number % 2 == 1) for number in range(faults)])

    def run_faults(self, faults: list[tuple[str, bool]]) -> None:
        """Strike these faults, each after another piece of the input. True: in a commit."""
        try:
            self._start()
            for kind, in_commit in faults:
                self.struck.append(f"{kind} in a commit" if in_commit else kind)
                (self._wait_for_commit if in_commit else self._wait_for_moment)()
                with self.faults[kind]():
                    self._continue()
                    time.sleep(self._chance.uniform(0, 1.5))  # not a wait: how long the fault lasts
            self._finish()
        finally:
            self._kill_driver()
            self._place.close()

    def kill_at_lines(self, where: str, count: int) -> int:
        """Kill a process at so many random lines all over a call: the driver in "a commit", "a rollback" or "a claim",
        or a TaskManager in "a flush". Returns how many lines the call has. Raises AssertionError if a row is wrong."""
        kill = self._kill_in_flush if where == "a flush" else partial(self._kill_in_call, where.removeprefix("a "))
        try:
            self._start()
            lines = int(eventually(kill(None), PATIENCE))
            for number in range(count):
                line = int((number + self._chance.random()) * lines / count)
                kill(line)
                self.struck.append(f"killed in {where}, at line {line}")
            self._finish()
        finally:
            self._kill_driver()
            self._place.close()
        return lines

    def _kill_in_call(self, call: str, line: int | None) -> Callable[[], str]:
        """Kill the driver. None: at the end of the call, and not the driver, which continues. Returns a function that
        returns the number of lines then.

        The driver calls `claim` and `rollback` after another one was killed at the first line of a commit.
        """
        if call != "commit":
            self._wait_for_commit(0)
            self._kill_driver()
        self._lever(self._folder / f"stop-{call}", 10**6 if line is None else line)
        self._produce() if call == "commit" else self._start()
        self._wait_until_stopped()
        if line is None:
            self._continue()
        else:
            with self._driver_killed():
                pass
        return lambda: next(iter(re.findall(f"a {call} of ([0-9]+) lines", self._log.read_text())), "")

    def _kill_in_flush(self, line: int | None) -> Callable[[], str]:
        lever, before = self._folder / "die", self._taskmanagers()
        self._lever(lever, 10**6 if line is None else line)
        self._produce()
        eventually(lambda: not lever.exists() and before - self._taskmanagers(), PATIENCE)
        return (self._folder / "die.lines").read_text

    def _taskmanagers(self) -> set[int]:
        """Return the processes of all TaskManagers, once they have started. One subtask needs only one of them."""
        count = min(TASKMANAGERS, self._parallelism)
        return set(eventually(lambda: self._runs() and len(found := pids(self._pid)) == count and found,
                              PATIENCE).values())  # fmt: skip

    def _finish(self) -> None:
        """End the input, and compare what readers see."""
        self._produce()
        self._end_input()
        eventually(self._is_complete, PATIENCE)
        eventually(lambda: not self._place.is_open(), PATIENCE)
        self._kill_driver()
        assert self._place.seen() == self.expected()

    def _wait_for_moment(self) -> None:
        """Wait until the job has taken another checkpoint, and then any time."""
        before = self._checkpoints()
        self._produce()
        eventually(lambda: self._runs() and self._checkpoints() > before, PATIENCE)
        time.sleep(self._chance.uniform(0, 0.3))  # not a wait: the moment of the fault

    def _checkpoints(self) -> float:
        """Return when the newest checkpoint was completed."""
        found = self._folder.glob("checkpoints/windows/chk-*/_metadata")
        return max((_time_of(path) for path in found), default=0.0)

    def _wait_for_commit(self, line: int | None = None) -> None:
        """Wait until the driver has stopped itself in a commit of the next rows, at this line or at any.

        A program that resumes commits before it starts the job, and an error there ends it. So wait until it has
        started, which its first checkpoint shows.
        """
        eventually(lambda: self._runs() and self._checkpoints() > self._started_at, PATIENCE)
        self._lever(self._folder / "stop-commit", self._chance.randrange(self._place.lines) if line is None else line)
        self._produce()
        self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        eventually(lambda: self._runs() and psutil.Process(self._pid).status() == psutil.STATUS_STOPPED, PATIENCE)

    def _lever(self, lever: Path, line: int) -> None:
        hidden = self._folder / "hidden"
        hidden.write_text(str(line))
        hidden.rename(lever)

    # --- the input, and the windows

    def _produce(self) -> None:
        rows: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for n in range(self._pieces * PIECE, (self._pieces + 1) * PIECE):
            rows[n % PARTITIONS].append(_row(n % KEYS, n * STEP))
        self._pieces += 1
        for partition in range(PARTITIONS):
            self._broker.produce(self._topic, rows[partition], partition)

    def _end_input(self) -> None:
        """Move the watermark of each partition past all windows."""
        for partition in range(PARTITIONS):
            self._broker.produce(self._topic, [_row(0, 10**9)], partition)

    def _is_complete(self) -> bool:
        return self._runs() and self._place.seen().total() >= len(self.expected())

    def expected(self) -> Counter[Window]:
        """Return the windows, each once."""
        found = Counter((n % KEYS, START + n * STEP // WINDOW * WINDOW) for n in range(self._pieces * PIECE))
        return Counter({(key, start, rows): 1 for (key, start), rows in found.items()})

    # --- the program

    def _start(self) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADGATE_WEB": "off"}
        self._started_at = time.time()
        self._parallelism = self._chance.choice((1, 2, 3))
        arguments = [self._servers, self._topic, str(self._folder), str(self._parallelism),
                     json.dumps(self._place.spec)]  # fmt: skip
        with self._log.open("ab") as log:  # another process writes it: the job's processes may not, on a full disk
            self._writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        assert self._writer.stdin is not None
        with self._writer.stdin as out:
            self._process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env=environ, stdout=out,
                                            stderr=out)  # fmt: skip

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _runs(self) -> bool:
        """Return True. Raises AssertionError if the program has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        return True

    def _continue(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def _kill_driver(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._writer is not None:  # it ends when no process of the job is left
            self._writer.wait(PATIENCE)

    # --- the faults

    @contextmanager
    def _taskmanager_killed(self) -> Iterator[None]:
        if not (members := pids(self._pid)):  # a restart commits what was left, before it starts them
            self._continue()
            members = eventually(lambda: self._runs() and pids(self._pid), PATIENCE)
        with suppress(ProcessLookupError):  # a restart may end it meanwhile
            os.kill(members[self._chance.choice(sorted(members))], signal.SIGKILL)
        yield

    @contextmanager
    def _driver_killed(self) -> Iterator[None]:
        self._kill_driver()
        yield
        self._start()

    @contextmanager
    def _disk_full(self) -> Iterator[None]:
        """No process of the job can write to a file."""
        unlimited = psutil.RLIM_INFINITY
        self._limit_files(0)
        yield
        self._limit_files(unlimited)

    def _limit_files(self, size: int) -> None:
        driver = psutil.Process(self._pid)
        for process in (driver, *driver.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))

    @contextmanager
    def _broker_paused(self) -> Iterator[None]:
        os.kill(self._broker.pid, signal.SIGSTOP)
        yield
        os.kill(self._broker.pid, signal.SIGCONT)

    @contextmanager
    def _broker_killed(self) -> Iterator[None]:
        self._broker.kill()
        yield
        self._broker.start()

    @contextmanager
    def _broker_restarted(self) -> Iterator[None]:
        self._broker.stop()
        yield
        self._broker.start()


def _row(key: int, milliseconds: int) -> bytes:
    at = datetime.fromtimestamp((START + milliseconds) / 1000, UTC)
    return json.dumps({"key": key, "at": at.isoformat(timespec="milliseconds")}).encode()


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # a newer one replaces it
        return 0.0


@contextmanager
def relayed_broker() -> Iterator[tuple[Broker, Relay]]:
    """Return a broker of one's own, whose connections can be cut."""
    relay = Relay()
    try:
        broker = broker_or_skip(None, **{"advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}"})
        relay.target = broker.port
        try:
            yield broker, relay
        finally:
            broker.close()
    finally:
        relay.close()
