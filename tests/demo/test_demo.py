"""`headgate demo` as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from headgate import cli

pytestmark = pytest.mark.timeout(400)

SOURCES = Path(__file__).parents[2] / "src"


def command(*arguments: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of a demo, and its environment."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "TMPDIR": str(folder)}
    return [sys.executable, "-m", "headgate.cli", "demo", *arguments], environment


def run_demo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line, environment = command(*arguments, folder=folder)
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=380, check=False)


def test_the_answer_for_a_year_of_flights_is_that_of_spark_sql(tmp_path: Path) -> None:
    done = run_demo("--json", "-", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    known = {
        "master": "local-cluster[2,1,1024]",
        "taskmanagers": 2,
        "rows_in": 336_776,
        "rows_out": 122_940,
        "late_rows": 0,
        "kept": 328_521,
        "unknown_planes": 48_550,
        "seats": 38_496_548,
        "carrier_hours": 59_704,
        "route_days": 63_236,
        "matches": True,
        "failures": [],
    }
    assert {name: report[name] for name in known} == known
    assert report["rows_out_before_end"] >= 122_940 / 2
    assert report["remote_bytes"] > 1_000_000
    assert report["rows_per_s"] == pytest.approx(336_776 / report["duration_s"], rel=0.01)
    assert "WARN" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--speedup", "0"], 2, "--speedup: '0' must be a number above 0"),
        (["--speedup", "fast"], 2, "--speedup: 'fast' must be a number above 0"),
        (["--json", "/no/such/report.json"], 2, "--json: '/no/such/report.json': there is no such folder"),
        (["--velocity", "9"], 2, "unrecognized arguments: --velocity 9"),
        (["--input", "/no/such"], 1, "/no/such/flights.csv: no such file; the folder must hold flights.csv"),
        (["--help"], 0, ""),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = SparkContext._active_spark_context
    try:
        returned = cli.main(["demo", *arguments])
    except SystemExit as ended:  # of argparse
        returned = int(ended.code or 0)
    assert returned == code
    assert message in capsys.readouterr().err
    assert SparkContext._active_spark_context is session


@pytest.mark.soak
def test_the_answer_is_the_same_with_a_worker_and_an_executor_killed(tmp_path: Path) -> None:
    done = run_demo("--kill", "--json", "-", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    known = {"rows_in": 336_776, "rows_out": 122_940, "late_rows": 0, "restarts": 2, "matches": True, "failures": []}
    assert {name: report[name] for name in known} == known
    assert "Killing a Python worker" in done.stderr
    assert "Killing a Spark executor" in done.stderr
    assert list(tmp_path.iterdir()) == []
