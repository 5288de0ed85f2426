"""Recordings: the last minutes of a job as a file, for `headgate doctor` and for tests of the diagnosis.

A recording is a gzip file of JSON lines. The first line has the job's topology, its options and the versions. Each
other line is a `MetricsSnapshot`. A recording contains no rows, keys or names of splits.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import tempfile
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.errors import RecordingError
from headgate.observe.channel_columns import columns_of
from headgate.observe.metrics_snapshot import MetricsSnapshot, as_json
from headgate.observe.topology import Topology

#: The format that is written. A report of format 1 has a dictionary for each channel.
_FORMAT: Final = 2
_READ: Final = (1, 2)
#: How long a recorder keeps snapshots, in seconds.
KEPT: Final = 600.0
#: The most memory that a recorder uses, in bytes. A full recorder drops its oldest snapshots.
_MAX_BYTES: Final = 32 << 20
#: The level of zlib with which recordings are compressed: the fastest, since counters compress well at any level.
_LEVEL: Final = 1
#: The most bytes of a recording after decompression.
_MAX_READ: Final = 1 << 30
#: The bytes of a snapshot's objects for each byte of its JSON.
_OBJECTS: Final = 4
#: The most recordings of failed jobs that are kept.
_MOST_RECORDINGS: Final = 20
#: A counter that contains names of data, such as files or topics. Recordings do not contain it.
_PRIVATE: Final = ("split",)


@dataclass(frozen=True, slots=True)
class Recording:
    """A job's topology, facts about it by name (options, versions), and snapshots, the oldest first."""

    topology: Topology
    facts: Mapping[str, Any]
    snapshots: Sequence[MetricsSnapshot]


class Recorder:
    """The compressed snapshots of the last ten minutes of a job. One thread at a time may use it."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lines: deque[tuple[float, bytes]] = deque()
        #: The bytes of all kept snapshots, compressed; and, as an estimate, of the last snapshot's objects in memory.
        self.nbytes = 0
        self.snapshot_nbytes = 0

    def add(self, snapshot: MetricsSnapshot) -> None:
        """Add a snapshot, and drop snapshots that are too old or exceed the memory."""
        public = replace(snapshot, reports=[_public(report) for report in snapshot.reports])
        text = as_json(public)
        self.snapshot_nbytes = _OBJECTS * len(text)
        line = zlib.compress(text, _LEVEL)
        self._lines.append((snapshot.at, line))
        self.nbytes += len(line)
        while self.nbytes > self._max_bytes or self._lines[0][0] < snapshot.at - KEPT:
            self.nbytes -= len(self._lines.popleft()[1])

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The compressed lines of all kept snapshots, for `write_recording`."""
        return tuple(line for _, line in self._lines)


def write_recording(
    path: str | os.PathLike[str], lines: Sequence[bytes], topology: Topology, facts: Mapping[str, Any]
) -> None:
    """Write the lines of a recorder to a file that only its owner may read. Raises RecordingError.

    This takes seconds for a large job.
    """
    head = {"headgate_recording": _FORMAT, "topology": asdict(topology), "facts": dict(facts)}
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file, gzip.open(file, "wb", compresslevel=_LEVEL) as content:
            content.write(json.dumps(head).encode() + b"\n")
            for line in lines:
                content.write(zlib.decompress(line) + b"\n")
    except OSError as error:
        raise RecordingError(f"cannot write the recording {os.fspath(path)}: {error}") from None


def recordings_folder() -> Path:
    """Return the folder for recordings of failed jobs, below the temporary folder. Only this user can open the folder.

    The function creates the folder, and removes the oldest recordings in it. Raises OSError if another user made the
    folder, or if other users can open it.
    """
    folder = Path(tempfile.gettempdir()) / f"headgate-recordings-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user may look into; remove it")
    recordings = sorted(folder.glob("*.recording"), key=_written_at)
    for path in recordings[:-_MOST_RECORDINGS]:
        path.unlink(missing_ok=True)
    return folder


def _written_at(recording: Path) -> float:
    """Return when a file was written last, or 0 if another process has just removed it."""
    try:
        return recording.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a recording. Raises RecordingError for a file that is not a recording, or that is too large."""
    try:
        with gzip.open(Path(path), "rb") as file:
            content = file.read(_MAX_READ + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingError(f"{os.fspath(path)} cannot be read as a recording: {error}") from None
    if len(content) > _MAX_READ:
        raise RecordingError(f"{os.fspath(path)} is larger than {_MAX_READ >> 20} MiB when it is unpacked")
    try:
        head, *lines = content.splitlines()
        facts = msgspec.json.decode(head, type=dict[str, Any])
        if facts["headgate_recording"] not in _READ:
            raise ValueError(f"its format is {facts['headgate_recording']!r}, not one of {_READ}")
        topology = msgspec.convert(facts["topology"], Topology)
        snapshots = [_in_columns(msgspec.json.decode(line, type=MetricsSnapshot)) for line in lines]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordingError(f"{os.fspath(path)} is not a recording of Headgate: {error}") from None
    return Recording(topology, facts.get("facts", {}), snapshots)


def _in_columns(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Return a snapshot whose reports have a list for each counter of their channels."""
    reports = [
        {**report, "channels": columns_of(report["channels"])} if isinstance(report.get("channels"), list) else report
        for report in snapshot.reports
    ]
    return replace(snapshot, reports=reports)


def _without_splits(name: str, value: Any) -> Any:
    """Return the number of unread messages of all splits together, since names of splits are names of topics."""
    return {"all": sum(value.values())} if name == "unread" and value else value


def _public(value: Any) -> Any:
    """Return counters without private names. Channels have none, and are too many to look at."""
    if isinstance(value, Mapping):
        return {
            name: each if name == "channels" else _public(_without_splits(name, each))
            for name, each in value.items()
            if name not in _PRIVATE
        }
    return [_public(each) for each in value] if isinstance(value, list | tuple) else value
