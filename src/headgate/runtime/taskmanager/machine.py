"""Reads from Linux how much the machine slows a process down.

All values are totals; subtract an earlier value to get a rate. A value is None if its file is missing or has another
format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from headgate.runtime.kernel_files import read_kernel_file

#: Ticks per second of the counters in /proc.
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: The place of the field `delayacct_blkio_ticks` in /proc/self/stat, counted behind the process name.
_BLOCK_DELAY_FIELD: Final = 39


class Machine:
    """Reads the values of this machine. `root` is the root folder of the file system; tests pass another folder."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._groups = [(path, name, second) for path, name, second in _groups(root) if name in self._pairs(path)]

    def read(self) -> dict[str, float | None]:
        """Return the current totals by name, in seconds or bytes.

        - `cpu_pressure_s`, `memory_pressure_s`, `io_pressure_s`: the seconds in which some task of the machine waited
          for a processor, for memory or for I/O ("some" in /proc/pressure).
        - `throttled_s`: the seconds in which the process's control group, or one above it, had used up its processor
          quota.
        - `steal_s`: the processor seconds that the hypervisor gave to other machines.
        - `block_delay_s`: the seconds in which the process waited for its disk reads.
        - `disk_read_bytes`, `disk_written_bytes`: the bytes that the process read from and wrote to disks. Bytes that
          it read from the page cache do not count.
        - `machine_cpu_s`: the processor seconds that all programs of the machine used.
        """
        io = self._pairs(self._proc / "self/io", ":")
        return {
            "cpu_pressure_s": self._pressure("cpu"),
            "memory_pressure_s": self._pressure("memory"),
            "io_pressure_s": self._pressure("io"),
            "throttled_s": self._throttled(),
            "steal_s": self._steal(),
            "machine_cpu_s": self._used(),
            "block_delay_s": self._block_delay(),
            "disk_read_bytes": io.get("read_bytes"),
            "disk_written_bytes": io.get("write_bytes"),
        }

    def _pressure(self, resource: str) -> float | None:
        for line in _lines(self._proc / "pressure" / resource):
            kind, *fields = line.split()
            totals = [field.removeprefix("total=") for field in fields if field.startswith("total=")]
            if kind == "some" and totals:
                return _scaled(_number(totals[0]), 1e6)
        return None

    def _throttled(self) -> float | None:
        """Return the throttled seconds of all the process's control groups: each has a quota of its own."""
        totals = [(self._pairs(path).get(name), second) for path, name, second in self._groups]
        return sum(total / second for total, second in totals if total is not None) if totals else None

    def _steal(self) -> float | None:
        fields = self._processors()
        return fields[7] / _TICKS if fields is not None else None

    def _used(self) -> float | None:
        """Return the processor seconds of all programs: all ticks except idle, iowait and steal."""
        fields = self._processors()
        return (sum(fields[:3]) + sum(fields[5:7])) / _TICKS if fields is not None else None

    def _processors(self) -> list[float] | None:
        """Return the ticks of all processors: user, nice, system, idle, iowait, irq, softirq, steal."""
        for line in _lines(self._proc / "stat"):
            name, *fields = line.split()
            ticks = [_number(field) for field in fields[:8]]
            if name == "cpu" and len(ticks) == 8:
                return [tick for tick in ticks if tick is not None]
        return None

    def _block_delay(self) -> float | None:
        for line in _lines(self._proc / "self/stat"):
            fields = line.rpartition(")")[2].split()  # a process name may have spaces
            if len(fields) > _BLOCK_DELAY_FIELD:
                return _scaled(_number(fields[_BLOCK_DELAY_FIELD]), _TICKS)
        return None

    @staticmethod
    def _pairs(path: Path, separator: str | None = None) -> Mapping[str, float]:
        pairs: dict[str, float] = {}
        for line in _lines(path):
            name, *values = line.split(separator)
            value = _number(values[0]) if len(values) == 1 else None
            if value is not None:
                pairs[name] = value
        return pairs


def _groups(root: Path) -> Iterator[tuple[Path, str, float]]:
    """Yield the files with the throttled time of the process's control group and those above it, the value's name, and
    its unit: version 2 of control groups counts microseconds, version 1 nanoseconds.

    In a container, the paths in /proc/self/cgroup may be those of the host. Then only the topmost group is found.
    """
    folder = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup") or ["0::/", "1:cpu:/"]:
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        for group in {PurePosixPath("/"), PurePosixPath(path), *PurePosixPath(path).parents}:
            below = str(group).lstrip("/.")
            if not controllers:
                yield folder / below / "cpu.stat", "throttled_usec", 1e6
            elif "cpu" in controllers.split(","):
                yield folder / "cpu" / below / "cpu.stat", "throttled_time", 1e9


def _lines(path: Path) -> list[str]:
    content = read_kernel_file(str(path)) or b""
    return content.decode("ascii", errors="replace").splitlines()


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and text.isdigit() else None


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value / by
