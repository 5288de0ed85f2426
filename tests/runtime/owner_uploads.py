"""Multipart uploads as S3 has them, in memory: each request of a program waits until the program may go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.connectors.file_sinks import uploaded_files


class Uploads:
    """The open uploads of a store, by their ids. Completing or aborting one ends it, whoever does so first."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._ids = map(str, itertools.count())
        self._open: dict[str, tuple[str, dict[int, bytes]]] = {}

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have file sinks upload to here."""
        for name in ("begin_upload", "upload_part", "complete_upload", "abort_upload", "open_uploads"):
            patch.setattr(uploaded_files, name, getattr(self, name))

    @property
    def names(self) -> list[str]:
        """The names of the objects that open uploads would become."""
        return sorted(Path(path).name for path, _ in self._open.values())

    # --- the functions of `headgate.s3_uploads`

    def begin_upload(self, path: str, region: str) -> str:
        self._step()
        upload = next(self._ids)
        self._open[upload] = path, {}
        return upload

    def upload_part(self, path: str, region: str, upload: str, number: int, content: bytes) -> None:
        self._step()
        if upload not in self._open:
            raise OSError(f"{path}: NoSuchUpload")
        self._open[upload][1][number] = content

    def complete_upload(self, path: str, region: str, upload: str) -> bool:
        """Two requests: the second one names the parts that the first one lists."""
        self._step()
        if upload not in self._open:
            return False
        parts = dict(self._open[upload][1])
        self._step()
        if self._open.pop(upload, None) is None:
            return False
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(b"".join(parts[number] for number in sorted(parts)))
        return True

    def abort_upload(self, path: str, region: str, upload: str) -> None:
        self._step()
        self._open.pop(upload, None)

    def open_uploads(self, folder: str, region: str) -> list[tuple[str, str]]:
        self._step()
        return [(path, upload) for upload, (path, _) in self._open.items() if path.startswith(f"{folder}/")]
