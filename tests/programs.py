"""Programs as users write them, run in this process.

Most of the time of a small program is the start of Python, and of the process that forks its TaskManagers. Here it
shares both with other tests.
"""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

import pytest

#: What changes the process, or needs one of its own.
_OWN = re.compile(r"pyspark|headgate\.spark|\bsignal\b|subprocess|\blogging\b|pytest|\bsys\.|kafka")


def needs_a_process(program: str) -> bool:
    return bool(_OWN.search(program))


def run_here(script: Path, folder: Path, capture: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Run the script in that folder. Return what it and its TaskManagers print to standard output and error."""
    before = Path.cwd()
    capture.readouterr()
    os.chdir(folder)
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        os.chdir(before)
    printed = capture.readouterr()
    return printed.out, printed.err
