"""The sink of `foreach_dataframe` without Spark, and what it promises of the calls of its function."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headgate.config import Config
from headgate.spark import dataframe_sink
from headgate.spark.dataframe_sink import ForeachDataframeSink

#: The run and the number of a checkpoint.
Key = tuple[str, int]


class Calls:
    """The calls in all programs, in their order. `step` is called before each."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
        self._folder = folder
        self._step = step
        self.made: list[tuple[Key, list[int]]] = []
        patch.setattr(dataframe_sink, "new_folder", lambda *_: f"{folder}/headgate-rows-{uuid.uuid4().hex[:12]}")
        patch.setattr(dataframe_sink, "read_files", lambda _, paths, columns: _numbers(paths))
        patch.setattr(dataframe_sink, "local_place", lambda folder: None)  # without a lock

    def sink(self) -> ForeachDataframeSink:
        function: Any = self._call  # it gets rows in place of a DataFrame
        return _CallingSink(function)

    def _call(self, rows: list[int], checkpoint: int, run: str) -> None:
        self._step()
        self.made.append(((run, checkpoint), rows))

    def rows(self, counts: Callable[[Key], bool]) -> list[int]:
        """Those of all calls whose run and number count. Calls with the same run and number got the same rows, which
        count once."""
        by_key: dict[Key, list[int]] = {}
        for key, rows in self.made:
            assert by_key.setdefault(key, rows) == rows, f"{key} named {by_key[key]}, and then {rows}"
        return sorted(row for key, rows in by_key.items() if counts(key) for row in rows)

    def left(self) -> list[str]:
        """The files of rows."""
        return sorted(path.name for path in self._folder.glob("headgate-rows-*/*.parquet"))


class _CallingSink(ForeachDataframeSink):
    def configure(self, config: Config, spark: Any) -> None:
        self._spark, self._spill_dir = spark, None

    def _require_slot(self) -> None:
        """There are no slots."""


def _numbers(paths: list[str]) -> list[int]:
    return [row for path in paths for row in pq.read_table(path)["n"].to_pylist()]
