"""The description of a file that a source reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow import fs


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as it was when a source found it. The source does not read bytes that are added to the file later."""

    filesystem: fs.FileSystem
    path: str
    #: The size of the file in bytes.
    size: int
    #: The time at which the file was last written, in nanoseconds since the epoch. None if the filesystem does not have
    #: it.
    modified: int | None = None
