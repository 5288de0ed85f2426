"""Every example runs, without a `__main__` guard, and prints what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_LINES = {
    "bad_lines.py": "trips.jsonl, line 2: column 'km' changed from number to string",
    "csv_to_parquet.py": "{'city': 'Rome', 'km': 7.0, 'minutes': 30, 'km_per_hour': 14.0}",
    "dataframe_source.py": "[{'city': 'Oslo', 'km': 3}, {'city': 'Rome', 'km': 12}]",
    "dealing_rows.py": "worker 1: 6 rows of odd orders",
    "late_rows.py": "6 readings in all, counted or put aside",
    "lookup_dimension.py": "{'carrier': 'UA', 'flights': 2, 'known_planes': 1, 'seats': 180}",
    "python_function.py": " F",
    "side_output.py": "refused: [{'item': 'milk', 'why': '-1 pieces'}]",
    "union_of_streams.py": "5 rows read, 2 written",
    "watched_folder.py": "[{'city': 'Rome', 'km': 7}, {'city': 'Oslo', 'km': 3}]",
    "word_count.py": "12:01  the    1",
}


def test_every_example_is_tested() -> None:
    assert sorted(LAST_LINES) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.timeout(300)  # one of them starts Spark
@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    command = [sys.executable, EXAMPLES / name]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=290, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.rstrip("\n").endswith(LAST_LINES[name])
