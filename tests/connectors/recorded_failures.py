"""Jobs that run for a while, and then fail. Their recordings are among what a user may see."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.runtime.master import job_monitor
from tests.connectors.shown import Shown

#: The rows that the jobs read before they fail, and how many they read in a second. TaskManagers report meanwhile.
ROWS, RATE = 1600, 1000.0


def record_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record failed jobs in the folder of the test, with each report of their TaskManagers."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(job_monitor, "PERIOD", 0.01)


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


def failing(env: hg.StreamEnvironment, uri: str) -> hg.DataStream:
    """Rows, and then an error of the user that quotes a URI."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == ROWS:
            raise ConnectionError(f"cannot reach {uri}")
        return row

    rows = env.from_source(hg.sources.generate(numbers, rate=RATE, batch_rows=10))
    return rows.map(check, schema=rows.schema)


def assert_is_recorded(shown: Shown, error: hg.HeadgateError) -> None:
    """The last minutes of the job are among what was searched for secrets."""
    (path,) = shown.folder.rglob("*.recording")
    assert path.name in str(error)
    assert any(text.startswith('{"headgate_recording"') for text in shown.all())
