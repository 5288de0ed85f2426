"""Measures a thread: its processor time, and how long it waited for a processor, a disk or the interpreter lock."""

from __future__ import annotations

import threading
import time
from typing import Final

from headgate.runtime.kernel_files import KernelFile
from headgate.runtime.lock_futex import interpreter_data, waits_for_a_futex, waits_for_the_lock

#: Whether the system has a clock for each thread that other threads can read.
_HAS_CLOCK: Final = hasattr(time, "pthread_getcpuclockid")

#: Where Linux describes the threads of this process.
_THREADS: Final = "/proc/self/task"
#: `clock` is the clock of the thread that reads it.
_HERE: Final = threading.local()


def clock_of_this_thread() -> ThreadClock | None:
    """Return the clock that measures the calling thread, or None if there is none."""
    clock: ThreadClock | None = getattr(_HERE, "clock", None)
    return clock


class ThreadClock:
    """The processor time of one thread: the thread that calls `start`, until this thread calls `stop`.

    Any thread may read the values, also after `stop`. Values that the system does not provide are None: macOS has no
    clock for another thread.
    """

    def __init__(self) -> None:
        #: The thread's number, as `threading.get_ident` returns it. None before `start` and after `stop`.
        self.ident: int | None = None
        #: The seconds in which the thread waited for a disk, by samples. None on a system that does not provide it.
        self.disk_wait: float | None = None
        #: The seconds in which the thread was at the interpreter lock, and in which it ran or was ready to run without
        #: the lock, by samples. None on a system that does not provide them. See `sample`.
        self.at_lock: float | None = None
        self.running: float | None = None
        self._sampled = 0.0
        #: These files stay open until `stop`.
        self._schedule: KernelFile | None = None
        self._state: KernelFile | None = None
        self._call: KernelFile | None = None
        self._clock: int | None = None
        self._cpu: float | None = 0.0 if _HAS_CLOCK else None
        self._run_delay: float | None = None

    def start(self) -> None:
        """Measure the calling thread from now on."""
        folder = f"{_THREADS}/{threading.get_native_id()}"
        self._schedule, self._state, self._call = (
            KernelFile(f"{folder}/{name}") for name in ("schedstat", "stat", "syscall")
        )
        if _HAS_CLOCK:
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self.ident = threading.get_ident()
        _HERE.clock = self

    def stop(self) -> None:
        """Store the last values. The measured thread calls this before it ends."""
        self.ident = None
        _HERE.clock = None
        self._cpu, self._run_delay = self.cpu(), self.run_delay()
        self._clock = None
        for file in (self._schedule, self._state, self._call):
            if file is not None:
                file.close()

    def cpu(self) -> float | None:
        """Return the thread's processor time so far in seconds, or None on a system that does not provide it."""
        clock = self._clock
        if clock is None:
            return self._cpu
        try:
            return time.clock_gettime(clock)
        except OSError:  # the thread has ended meanwhile
            return self._cpu

    def run_delay(self) -> float | None:
        """Return the seconds in which the thread was ready to run but no processor was free.

        Returns None on a system that does not provide this value. Linux provides it in the file `schedstat`.
        """
        fields = _content(self._schedule).split()
        return int(fields[1]) / 1e9 if len(fields) > 1 and fields[1].isdigit() else self._run_delay

    def sample(self, now: float) -> None:
        """Look at what the thread does, and count the time since the last sample for it. `now` is of any clock.

        - `disk_wait`: it waits for a disk or a network file system. Linux counts such waits only if its delay
          accounting is on. But a thread that waits for a disk is in uninterruptible sleep, which Linux always shows. A
          thread that waits for a futex waits for no disk.
        - `at_lock`: it waits for the interpreter lock. The thread that samples holds the lock meanwhile. So a thread
          that held it just before also counts. The time of `cpu` and `run_delay` that is not in `running` is the time
          in which the thread held the lock: subtract it to get the time in which it waited.
        """
        before, self._sampled = self._sampled, now
        seconds = now - before if before else 0.0
        call, data = _content(self._call), interpreter_data()
        is_running, is_at_lock = call.startswith(b"running"), data is not None and waits_for_the_lock(call, data)
        if call and data is not None:
            self.running = (self.running or 0.0) + seconds * is_running
            self.at_lock = (self.at_lock or 0.0) + seconds * is_at_lock
        is_at_disk = False if is_running or waits_for_a_futex(call) else self._is_at_disk()
        if is_at_disk is not None:
            self.disk_wait = (self.disk_wait or 0.0) + seconds * is_at_disk

    def _is_at_disk(self) -> bool | None:
        """Return whether the thread is in uninterruptible sleep, or None on a system that does not say so."""
        state = _content(self._state)
        return state[state.rfind(b")") :].startswith(b") D") if state else None


def _content(file: KernelFile | None) -> bytes:
    """Return the content of a file in /proc, or nothing if it cannot be read."""
    return b"" if file is None else file.read() or b""
