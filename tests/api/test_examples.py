"""Every example runs, and prints what it should; an example that starts Spark or processes runs as a script."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headgate as hg
from tests.programs import needs_a_process, run_here

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_LINES = {
    "bad_lines.py": "trips.jsonl, line 2: column 'km' changed from number to string",
    "choose_rows.py": "cheapest from 01:00: lamp for 30",
    "csv_to_parquet.py": "{'city': 'Rome', 'km': 7.0, 'minutes': 30, 'km_per_hour': 14.0}",
    "daily_extremes.py": '"weir",1.75,1.75,1.75,1.75,1',
    "database_to_tables.py": "{'id': 2, 'percent': 100.0}, {'id': 3, 'percent': 20.0}]",
    "dataframe_source.py": "[Row(km=3, checkpoint=0), Row(km=12, checkpoint=0)]",
    "own_aggregate.py": "00:01  B  5.00  1",
    "own_connector.py": "[('a', 0, 4), ('a', 1, 5), ('b', 0, 6)]",
    "partition_rows.py": "worker 1: 6 rows of odd orders",
    "slow_operator.py": "HIGH: orders waits for warehouse, a waiting_function",
    "endless_job.py": "CANCELLED: job 'lines' was cancelled",
    "limited_rate.py": "the source waited for its throttle: True",
    "join_streams.py": "ordered from 00:30: 1 rows, 12.00 euro",
    "kafka_orders.py": "{'Oslo': 500, 'Rome': 500}",
    "frames.py": "{'city': 'ROME', 'km': 30.0, 'level': 'long'}",
    "late_rows.py": "6 readings in all, counted or put aside",
    "log_errors.py": "{'host': 'b', 'message': 'no route', 'times': 1}]",
    "lookup_dimension.py": "{'carrier': 'UA', 'flights': 2, 'known_planes': 1, 'seats': 180}",
    "lookup_service.py": "{'sensor': 's9', 'celsius': 5, 'room': None, 'limit': None}",
    "nexmark.py": "'window_end': datetime.datetime(2015, 7, 15, 0, 0, 58, tzinfo=zoneinfo.ZoneInfo(key='UTC'))}",
    "python_function.py": " F",
    "readings_to_service.py": "[('lock', 3.5), ('weir', 1.5), ('weir', 2.5)]",
    "restart.py": "10000 rows, 10000 counted, total 49995000",
    "running_totals.py": "the largest total in the history: 12",
    "savepoint.py": "60000 rows, 60000 counted, total 1799970000",
    "sessions.py": "bob  00:05 to 00:40  2 clicks, from home to shop",
    "side_output.py": "refused: [{'item': 'milk', 'why': '-1 pieces'}]",
    "state_and_timers.py": "order 3 is not paid for: {'tea': 2}",
    "stop.py": "FINISHED, FINISHED, all are counted: True",
    "tasks_and_processes.py": "through sockets: True",
    "tested_pipeline.py": "2 tests passed",
    "union_of_streams.py": "5 rows read, 2 written",
    "vectorised_state.py": "('a', 1.5), ('a', 3.75), ('b', 6.0), ('b', 4.5)]",
    "watched_folder.py": "[{'city': 'Rome', 'km': 7}, {'city': 'Oslo', 'km': 3}]",
    "ways_to_partition.py": "broadcast  every row to all                   [8, 8, 8, 8]",
    "word_count.py": "12:01  the    1",
}


def test_every_example_is_tested_and_listed() -> None:
    assert sorted(LAST_LINES) == sorted(path.name for path in EXAMPLES.glob("*.py"))
    listed = re.findall(r"^\| \[(\S+)\]\((\S+)\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [(name, name) for name in sorted(LAST_LINES)]


def _public(kind: type) -> list[str]:
    inherited = [base for base in kind.__mro__ if base.__module__.startswith("headgate.")]
    return [name for base in inherited for name in vars(base) if not name.startswith("_")]


def test_the_examples_use_every_public_function() -> None:
    text = "\n".join((EXAMPLES / name).read_text() for name in LAST_LINES)
    kinds = (hg.StreamEnvironment, hg.DataStream, hg.KeyedStream, hg.WindowedStream, hg.StreamSink, hg.JobHandle)
    methods = {name for kind in kinds for name in _public(kind)} - {"schema", "metrics"}
    functions = [f"hg.sources.{name}" for name in hg.sources.__all__] + [
        f"hg.sinks.{name}" for name in hg.sinks.__all__
    ]
    functions += [f"hg.{name}" for name in hg.__all__ if name[0].islower()]
    functions += ["hg.Config", "hg.LocalDeployment", "hg.SideOutput", "hg.SparkDeployment", "hg.Watermark"]
    functions += ["hg.KeyedProcessFunction", "hg.ValueState", "hg.MapState"]
    shown = [*functions, *(f".{name}" for name in methods)]
    assert [name for name in shown if not re.search(re.escape(name) + r"\b", text)] == []


@pytest.mark.timeout(300)  # one of them starts Spark
@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_prints_its_last_line(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not needs_a_process((EXAMPLES / name).read_text()):
        out, err = run_here(EXAMPLES / name, tmp_path, capfd)
        assert err == ""
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
        assert out.rstrip("\n").endswith(LAST_LINES[name])
        return
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    servers = [request.getfixturevalue("kafka").servers] if name.startswith("kafka") else []
    command = [sys.executable, str(EXAMPLES / name), *servers]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=290, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == "" or "pyspark" in (EXAMPLES / name).read_text()  # a session of the user's own warns there
    assert run.stdout.rstrip("\n").endswith(LAST_LINES[name])
