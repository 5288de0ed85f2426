"""The description of a file that a source reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow import fs


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as a source found it. The source does not read bytes that are added later."""

    filesystem: fs.FileSystem
    path: str
    #: Bytes.
    size: int
    #: When the file was last written, in nanoseconds since the epoch; None where the filesystem does not say.
    modified: int | None = None
