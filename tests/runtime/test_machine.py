"""What the machine says about itself is read as it stands, and what it does not say is unknown."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import pytest

from headgate.runtime import lock_futex
from headgate.runtime.task import thread_clock
from headgate.runtime.task.thread_clock import ThreadClock
from headgate.runtime.taskmanager.interpreter import CollectorClock, LockProbe
from headgate.runtime.taskmanager.machine import Machine
from headgate.runtime.taskmanager.process_evidence import ProcessEvidence

FILES = {
    "proc/pressure/cpu": "some avg10=98.81 avg60=98.75 avg300=97.62 total=2500000\nfull avg10=0.00 total=9\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "proc/pressure/io": "some avg10=3.28 avg60=4.04 avg300=5.38 total=1000\n",
    "proc/stat": "cpu  1 2 3 4 5 6 7 400 0 0\ncpu0 1 2 3 4 5 6 7 9 0 0\n",
    "proc/self/stat": "7 (a name) of) S " + " ".join(["0"] * 38 + ["200", "0"]) + "\n",
    "proc/self/io": "rchar: 10\nread_bytes: 4096\nwrite_bytes: 512\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 5\nthrottled_usec 3000000\n",
}


def write(root: Path, files: dict[str, str]) -> Machine:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Machine(root)


def test_each_file_is_read_in_its_own_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.runtime.taskmanager.machine._TICKS", 100)
    assert write(tmp_path, FILES).read() == {
        "cpu_pressure_s": 2.5,
        "memory_pressure_s": 0.0,
        "io_pressure_s": 0.001,
        "throttled_s": 3.0,
        "steal_s": 4.0,
        "machine_cpu_s": 0.19,
        "block_delay_s": 2.0,
        "disk_read_bytes": 4096.0,
        "disk_written_bytes": 512.0,
    }


def test_control_groups_of_version_1_count_nanoseconds(tmp_path: Path) -> None:
    machine = write(tmp_path, {"sys/fs/cgroup/cpu/cpu.stat": "nr_throttled 2\nthrottled_time 1500000000\n"})
    assert machine.read()["throttled_s"] == 1.5


def test_the_quotas_of_the_groups_of_the_process_count(tmp_path: Path) -> None:
    """Another group's does not, and neither does one that is not there."""
    files = {
        "proc/self/cgroup": "0::/jobs/nightly/main\n",
        "sys/fs/cgroup/jobs/nightly/cpu.stat": "throttled_usec 1500000\n",
        "sys/fs/cgroup/jobs/cpu.stat": "throttled_usec 250000\n",
        "sys/fs/cgroup/other/cpu.stat": "throttled_usec 9000000\n",
    }
    assert write(tmp_path, files).read()["throttled_s"] == 1.75


def test_in_a_container_the_path_of_the_host_is_not_there(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n",
        "sys/fs/cgroup/cpu/cpu.stat": "throttled_time 500000000\n",
    }
    assert write(tmp_path, files).read()["throttled_s"] == 0.5


def test_what_is_missing_is_unknown(tmp_path: Path) -> None:
    assert set(Machine(tmp_path).read().values()) == {None}


@pytest.mark.parametrize("text", ["", "some\n", "some total=many\n", "\xff\n", "cpu\n", "x (y\n", "read_bytes: 1 2\n"])
def test_what_reads_otherwise_is_unknown(tmp_path: Path, text: str) -> None:
    assert set(write(tmp_path, dict.fromkeys(FILES, text)).read().values()) == {None}


@pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")
def test_this_machine_says_something() -> None:
    assert Machine().read()["steal_s"] is not None


def test_collections_are_counted_and_timed() -> None:
    ticks = iter(range(100))
    collector = CollectorClock(lambda: float(next(ticks)))
    gc.disable()
    try:
        collector.start()
        gc.collect()
        gc.collect()
        collector.stop()
        gc.collect()
    finally:
        gc.enable()
    assert (collector.collections, collector.seconds) == (2, 2.0)


def test_a_collection_counts_for_the_thread_on_which_it_runs() -> None:
    ticks = iter(range(100))
    collector = CollectorClock(lambda: float(next(ticks)))
    clocks = ThreadClock(), ThreadClock()

    def collect(clock: ThreadClock, times: int) -> None:
        clock.start()
        for _ in range(times):
            gc.collect()
        clock.stop()
        gc.collect()

    gc.disable()
    try:
        collector.start()
        gc.collect()
        for clock, times in zip(clocks, (1, 3), strict=True):
            thread = threading.Thread(target=collect, args=(clock, times))
            thread.start()
            thread.join()
        collector.stop()
    finally:
        gc.enable()
    assert [collector.of(clock) for clock in clocks] == [1.0, 3.0]
    assert collector.seconds == 1.0 + (1.0 + 1.0) + (3.0 + 1.0)
    assert collector.of(ThreadClock()) == 0.0


def test_a_late_wakeup_counts_without_the_wait_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter([1.0, 1.5, 1.5, 9.0])
    monkeypatch.setattr(ThreadClock, "run_delay", lambda _clock: next(delays))
    probe = LockProbe()
    for late in (0.75, 0.125, 0.5):
        probe.note(late)
    assert (probe.seconds, probe.wakeups) == (0.25 + 0.125, 3)


def test_without_run_delays_the_lock_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadClock, "run_delay", lambda _clock: None)
    probe = LockProbe()
    probe.note(1.0)
    assert probe.seconds is None


def test_without_a_clock_of_the_thread_its_processor_time_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_clock, "_HAS_CLOCK", False)
    clock = ThreadClock()
    clock.start()
    assert clock.cpu() is None
    clock.stop()
    assert clock.cpu() is None


def test_samples_say_for_what_a_thread_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(thread_clock, "_THREADS", tmp_path)
    monkeypatch.setattr(thread_clock, "interpreter_data", lambda: range(0x7000, 0x8000))
    monkeypatch.setattr(lock_futex, "_FUTEX", b"202 ")
    folder = tmp_path / str(threading.get_native_id())
    folder.mkdir()
    clock = ThreadClock()
    clock.start()
    assert (clock.disk_wait, clock.at_lock, clock.running) == (None, None, None)
    at_lock, sleeps = "202 0x7500 0x89 0x0", "230 0x0 0x0 0x7ffe"
    samples = (
        (10.0, "D", sleeps),
        (10.5, "D", sleeps),
        (11.5, "S", at_lock),
        (12.0, "D", sleeps),
        (12.25, "R", "running"),
        (13.25, "D", "202 0x1234 0x89 0x0"),  # a signal of another thread: its state is not read
    )
    for now, state, call in samples:
        (folder / "stat").write_text(f"123 (a (thread) D) {state} 1 123")
        (folder / "syscall").write_text(call + "\n")
        clock.sample(now)
    clock.stop()
    assert (clock.disk_wait, clock.at_lock, clock.running) == (0.5 + 0.5, 1.0, 0.25)


@pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")
def test_the_files_of_a_thread_stay_open_until_it_ends() -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) - before

    before = 0
    before = opened()
    clock, is_started, is_over = ThreadClock(), threading.Event(), threading.Event()

    def run() -> None:
        clock.start()
        is_started.set()
        is_over.wait()
        clock.stop()

    thread = threading.Thread(target=run)
    thread.start()
    is_started.wait()
    try:
        assert opened() == 0
        clock.sample(1.0)
        assert opened() == 1  # what a thread that waits for another thread does is known without its state
        for _ in range(3):
            assert clock.run_delay() is not None
            clock.sample(2.0)
        assert opened() == 2
    finally:
        is_over.set()
        thread.join()
    clock.sample(3.0)
    assert clock.run_delay() is not None
    assert opened() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")
def test_the_files_of_the_machine_stay_open_until_it_is_closed() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    machine = Machine()
    values = machine.read()
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    assert all(machine.read()[name] is not None for name, value in values.items() if value is not None)
    machine.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert set(machine.read().values()) == {None}


@pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")
def test_what_a_process_measures_leaves_no_file_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    evidence = ProcessEvidence()
    evidence.start()
    evidence.read(1.0, is_last=False)
    evidence.stop()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_where_the_system_does_not_say_what_a_thread_does_its_waits_are_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(thread_clock, "_THREADS", tmp_path)
    clock = ThreadClock()
    clock.start()
    clock.sample(1.0)
    assert (clock.disk_wait, clock.at_lock, clock.running) == (None, None, None)
