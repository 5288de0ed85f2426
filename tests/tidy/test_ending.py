"""A test that is late is tried three times, and its best time counts; any other failure is final."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ending import TooLate

ROOT = Path(__file__).parents[2]
TRIED: list[Path] = []


def test_the_best_of_three_tries_counts(tmp_path: Path) -> None:
    TRIED.append(tmp_path)
    if len(TRIED) < 3:
        raise TooLate
    assert len(set(TRIED)) == 3, "each with fixtures of its own"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [("TooLate('took 6.0 s')", "1 failed, 2 rerun in"), ("AssertionError('TooLate: took 6.0 s')", "1 failed in")],
)
def test_three_tries_are_all(tmp_path: Path, error: str, outcome: str) -> None:
    test = tmp_path / "test_late.py"
    test.write_text(f"from tests.ending import TooLate\n\ndef test_late():\n    raise {error}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), str(test)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert outcome in run.stdout, run.stdout + run.stderr


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process asks nobody")
def test_no_process_waits_before_it_asks_for_earlier_failures(pytestconfig: pytest.Config) -> None:
    """It asks before each test, and the kernel would keep each question for 40 ms: 80 s of a run of `make test`."""
    link = pytestconfig.failures_db.sock  # type: ignore[attr-defined]
    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
