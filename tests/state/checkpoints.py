"""Makes checkpoints in a folder, and simulates a full disk."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import fs

from headgate.state.checkpoint_metadata import CheckpointMetadata, Finished, NodeDescription, TaskState, VertexState
from headgate.state.checkpoint_storage import CheckpointStorage, write_part

NODES = (NodeDescription("read#0", "read", "source", "a: int64"), NodeDescription("out", "write", "sink", "a: int64"))


def make_checkpoint(storage: CheckpointStorage, checkpoint: int, payload: bytes = b"state!") -> CheckpointMetadata:
    """Make a complete checkpoint of two tasks, one of which has finished."""
    parts = [payload[:-1], pa.py_buffer(payload[-1:])]
    file = write_part(storage.folder_of(checkpoint), 0, "read -> write[0]", parts)
    metadata = metadata_of(storage, checkpoint, (file, Finished({"read#0": 7})))
    storage.complete(metadata)
    return metadata


def metadata_of(storage: CheckpointStorage, checkpoint: int, tasks: tuple[TaskState, ...]) -> CheckpointMetadata:
    vertices = (VertexState("read#0", "read -> write", 128, tasks),)
    return CheckpointMetadata(id=checkpoint, timestamp=1700000000.5, duration=0.25, job=storage.job, attempt=0,
                              vertices=vertices, nodes=NODES, pending={"out": [["_a", "_b"], ["_c"]]},
                              prepared={"read#0": {"files": ["x"]}})  # fmt: skip


def sealed(body: Any) -> bytes:
    """Return the content of metadata with a right checksum."""
    checksum = xxhash.xxh3_64_hexdigest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    whole = {"format": "headgate checkpoint", "version": 1, "checksum": checksum, "checkpoint": body}
    return json.dumps(whole).encode()


class FullDisk(fs.FileSystemHandler):
    """The local filesystem, with room for only `room` more bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._local = fs.LocalFileSystem()

    def get_type_name(self) -> str:
        return "full"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        return self._local.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._local.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._local.delete_dir(path)

    def delete_file(self, path: str) -> None:
        self._local.delete_file(path)

    def move(self, source: str, target: str) -> None:
        self._local.move(source, target)

    def open_input_file(self, path: str) -> Any:
        return self._local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: object) -> Any:
        return pa.PythonFile(_FullFile(self, path), mode="w")

    def _none(self, *_: object) -> Any:
        raise NotImplementedError

    delete_dir_contents = delete_root_dir_contents = copy_file = open_input_stream = open_append_stream = _none


class _FullFile:
    """A file that accepts bytes until the disk is full."""

    def __init__(self, disk: FullDisk, path: str) -> None:
        self._disk = disk
        self._file = Path(path).open("wb")  # noqa: SIM115
        self.closed = False

    def write(self, data: bytes) -> int:
        fits = bytes(data)[: self._disk.room]
        self._disk.room -= len(fits)
        self._file.write(fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        self.closed = True
