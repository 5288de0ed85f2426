"""Damaged messages never end the process that reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_damaged_messages_are_errors_and_crash_nothing(seed: int) -> None:
    command = [sys.executable, "-m", "tests.records.mutations", str(seed), "3000"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 6000
