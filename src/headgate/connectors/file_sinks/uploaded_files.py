"""`UploadedFiles`: hidden files on S3. Each is a multipart upload, which becomes an object when it is completed."""

from __future__ import annotations

import posixpath
from typing import Final

import pyarrow as pa
from pyarrow import fs

from headgate.filesystems import listing
from headgate.s3_uploads import abort_upload, begin_upload, complete_upload, open_uploads, upload_part

#: The least size of a part in bytes, except for the last part of a file.
_PART_BYTES: Final = 8 << 20
#: The most parts of a file. S3 takes 10,000.
_PARTS: Final = 5_000
#: What separates a file's name and the id of its upload. Names of partitions have it as %23.
_SEPARATOR: Final = "#"


class UploadedFiles:
    """Hidden files below a folder on S3. The name of a hidden file is `_NAME#UPLOAD` for the object NAME.

    `file_bytes` is the target size of a file. A file that is being written holds one part in memory.
    """

    most_open = 12

    def __init__(self, filesystem: fs.S3FileSystem, root: str, file_bytes: int) -> None:
        self._filesystem = filesystem
        self._root = root
        self._part_bytes = max(_PART_BYTES, file_bytes // _PARTS)

    def check(self) -> None:
        """Check that the bucket is there, and that the user may upload."""
        path = posixpath.join(self._root, "_check")
        abort_upload(path, self._filesystem.region, begin_upload(path, self._filesystem.region))

    def create(self, path: str) -> Upload:
        return Upload(_shown(path), self._filesystem.region, self._part_bytes)

    def show(self, path: str) -> bool:
        name, _, upload = path.rpartition(_SEPARATOR)
        if upload and complete_upload(_shown(name), self._filesystem.region, upload):
            return True
        return bool(self._filesystem.get_file_info(_shown(name)).type == fs.FileType.File)

    def entries(self) -> list[fs.FileInfo]:
        uploads = open_uploads(self._root, self._filesystem.region)
        hidden = [fs.FileInfo(_hidden(path, upload), fs.FileType.File) for path, upload in uploads]
        return [*listing(self._filesystem, self._root, recursive=True), *hidden]

    def delete(self, path: str) -> None:
        name, _, upload = path.rpartition(_SEPARATOR)
        if upload and posixpath.basename(name).startswith("_"):
            abort_upload(_shown(name), self._filesystem.region, upload)
        else:
            self._filesystem.delete_file(path)


class Upload:
    """A file that is being written. Its parts are sent when they are full, and the upload stays open after `close`."""

    def __init__(self, path: str, region: str, part_bytes: int) -> None:
        self._path = path
        self._region = region
        self._part_bytes = part_bytes
        self._part = bytearray()
        self._parts = self._written = 0
        self._is_abandoned = False
        self._upload = begin_upload(path, region)
        self.suffix = f"{_SEPARATOR}{self._upload}"
        self.stream = pa.PythonFile(self, "w")

    # --- what the stream calls

    closed = False

    def write(self, content: bytes) -> int:
        """Append bytes, and send them if they make a part."""
        self._part += content
        self._written += len(content)
        if len(self._part) >= self._part_bytes:
            self._send()
        return len(content)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._written

    def flush(self) -> None:
        """Do nothing: only whole parts are sent."""

    # --- what the owner calls

    def close(self) -> None:
        """Send the last part. A second call changes nothing."""
        if self._part or not self._parts:
            self._send()

    def abandon(self) -> None:
        """Drop the upload. What is written from now on is ignored."""
        self._is_abandoned = True
        abort_upload(self._path, self._region, self._upload)

    def _send(self) -> None:
        self._parts += 1
        content, self._part = bytes(self._part), bytearray()
        if not self._is_abandoned:
            upload_part(self._path, self._region, self._upload, self._parts, content)


def _shown(path: str) -> str:
    """Return the path of the object of a hidden file."""
    folder, base = posixpath.split(path)
    return posixpath.join(folder, base.removeprefix("_"))


def _hidden(path: str, upload: str) -> str:
    folder, base = posixpath.split(path)
    return posixpath.join(folder, f"_{base}{_SEPARATOR}{upload}")
