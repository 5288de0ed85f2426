"""Reads from Linux how much the machine slows a process down.

All values are totals; subtract an earlier value to get a rate. A value is None if its file is missing or has another
format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from headgate.runtime.kernel_files import KernelFile, read_kernel_file
from headgate.runtime.processor_limits import control_groups

#: Ticks per second of the counters in /proc.
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: The place of the field `delayacct_blkio_ticks` in /proc/self/stat, counted behind the process name.
_BLOCK_DELAY_FIELD: Final = 39


class Machine:
    """Reads the values of this machine. `root` is the root folder of the file system; tests pass another folder.

    Its files stay open until `close`.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._groups = [
            (KernelFile(str(path)), name, second)
            for path, name, second in _quota_files(root)
            if name in _pairs(read_kernel_file(str(path)))
        ]
        names = ("stat", "self/stat", "self/io", "pressure/cpu", "pressure/memory", "pressure/io")
        self._files = {name: KernelFile(str(root / "proc" / name)) for name in names}

    def close(self) -> None:
        """Close the files. All values are None from now on."""
        for file in (*self._files.values(), *(file for file, _, _ in self._groups)):
            file.close()

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
        io = _pairs(self._files["self/io"].read(), b":")
        ticks = _processors(self._files["stat"].read())
        return {
            "cpu_pressure_s": _pressure(self._files["pressure/cpu"].read()),
            "memory_pressure_s": _pressure(self._files["pressure/memory"].read()),
            "io_pressure_s": _pressure(self._files["pressure/io"].read()),
            "throttled_s": self._throttled(),
            "steal_s": ticks[7] / _TICKS if ticks is not None else None,
            # all ticks except idle, iowait and steal
            "machine_cpu_s": (sum(ticks[:3]) + sum(ticks[5:7])) / _TICKS if ticks is not None else None,
            "block_delay_s": _block_delay(self._files["self/stat"].read()),
            "disk_read_bytes": io.get("read_bytes"),
            "disk_written_bytes": io.get("write_bytes"),
        }

    def _throttled(self) -> float | None:
        """Return the throttled seconds of all the process's control groups: each has a quota of its own."""
        totals = [(_pairs(file.read()).get(name), second) for file, name, second in self._groups]
        known = [total / second for total, second in totals if total is not None]
        return sum(known) if known else None


def _pressure(content: bytes | None) -> float | None:
    """Return the seconds after "total=" in the line "some" of a file of /proc/pressure."""
    for line in (content or b"").splitlines():
        if line.startswith(b"some "):
            return _scaled(_number(line.partition(b"total=")[2]), 1e6)
    return None


def _processors(content: bytes | None) -> list[float] | None:
    """Return the ticks of all processors, from /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    name, *fields = (content or b"").partition(b"\n")[0].split()[:9] or [b""]
    ticks = [tick for field in fields if (tick := _number(field)) is not None]
    return ticks if name == b"cpu" and len(ticks) == 8 else None


def _block_delay(content: bytes | None) -> float | None:
    """Return the seconds in which a process waited for its disk reads, from its file `stat` in /proc."""
    fields = (content or b"").rpartition(b")")[2].split()  # a process name may have spaces
    return _scaled(_number(fields[_BLOCK_DELAY_FIELD]), _TICKS) if len(fields) > _BLOCK_DELAY_FIELD else None


def _pairs(content: bytes | None, separator: bytes | None = None) -> Mapping[str, float]:
    """Return the numbers in a file whose lines have a name and a number each."""
    pairs: dict[str, float] = {}
    for line in (content or b"").splitlines():
        name, *values = line.split(separator)
        value = _number(values[0]) if len(values) == 1 else None
        if value is not None:
            pairs[name.decode("ascii", errors="replace")] = value
    return pairs


def _quota_files(root: Path) -> Iterator[tuple[Path, str, float]]:
    """Yield the files with the throttled time of the process's control group and those above it, the value's name, and
    its unit: version 2 of control groups counts microseconds, version 1 nanoseconds."""
    for group in control_groups(root):
        name, unit = ("throttled_usec", 1e6) if group.version == 2 else ("throttled_time", 1e9)
        yield group.folder / "cpu.stat", name, unit


def _number(text: bytes) -> float | None:
    text = text.strip()
    return float(text) if text.isdigit() else None


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value / by
