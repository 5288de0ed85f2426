"""The local filesystem, on which each operation of a program waits until the program may go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pyarrow import fs

from headgate import filesystems, ownership
from headgate.connectors.file_sinks import file_sink, ledger
from headgate.spark import dataframe_sink
from headgate.state import checkpoint_files

#: The modules that import `locate` by name.
_MODULES = (filesystems, ownership, checkpoint_files, file_sink, ledger, dataframe_sink)


def step_before_operations(patch: pytest.MonkeyPatch, step: Callable[[], None], store: str | None = None) -> None:
    """Have `step` called before each operation on a file, on the thread that asks for it.

    Power does not fail here, so files are not synced. The folder `store` is in an object store.
    """
    stepping, storing = _Stepping(step), _Store(step)
    find, create = filesystems.locate, filesystems._create_local

    def locate(path: str) -> tuple[fs.FileSystem, str]:
        inside = find(path)[1]
        return storing if store is not None and f"{inside}/".startswith(f"{store}/") else stepping, inside

    def create_local(path: str, content: bytes) -> bool:
        step()
        if locate(path)[0] is storing:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return create(path, content)

    for module in _MODULES:
        patch.setattr(module, "locate", locate)
    patch.setattr(filesystems, "_create_local", create_local)
    patch.setattr(os, "fsync", lambda descriptor: None)


class _Stepping(fs.LocalFileSystem):
    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self.step = step


class _Store(_Stepping):
    """An object store, like S3: it needs no folders. To create a file that must be new is one operation, as with a
    conditional write."""

    type_name = "s3"
    region = "nowhere"

    def open_output_stream(self, path: str, *arguments: Any, **options: Any) -> Any:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return super().open_output_stream(path, *arguments, **options)


def _stepped(name: str) -> Any:
    original = getattr(fs.LocalFileSystem, name)

    def method(self: _Stepping, *arguments: Any, **options: Any) -> Any:
        self.step()
        return original(self, *arguments, **options)

    return method


for _name in ("move", "delete_file", "delete_dir", "delete_dir_contents", "get_file_info", "create_dir",
              "open_output_stream", "open_input_file"):  # fmt: skip
    setattr(_Stepping, _name, _stepped(_name))
