"""Flink SQL for comparison: install its environment on first use, and measure the time of its queries.

The environment is in `$HEADGATE_CACHE`. If that is not set, it is in `headgate` in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from headgate.bench.conversation import ChildFailed, ChildProcess

VERSION = "2.3.0"
REQUIREMENTS = Path(__file__).with_name("flink_requirements.txt")
#: The versions of Python that PyFlink supports.
PYTHONS = ((3, 11), (3, 12))
#: How many seconds a query may take. The first query also starts Flink.
QUERY_TIMEOUT = 600.0
INSTALL_TIMEOUT = 1800.0

Query = Literal["one-phase", "two-phase", "source-only"]


class Flink:
    """A running Flink in its own process. Use it as a context manager. Raises ChildFailed if Flink cannot run."""

    def __init__(self, parallelism: int, say: Callable[[str], None]) -> None:
        if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
            raise ChildFailed("Flink needs Java; put java in PATH or set JAVA_HOME")
        job = Path(__file__).with_name("flink_job.py")
        self._process = ChildProcess("Flink", [str(_environment(say)), str(job), str(parallelism)])

    def seconds(self, query: Query, rows: int) -> float:
        """Return the seconds that `query` takes for `rows` rows, the job's start-up included. Raises ChildFailed."""
        return float(self._process.ask({"query": query, "rows": rows}, QUERY_TIMEOUT)["seconds"])

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()


def _environment(say: Callable[[str], None]) -> Path:
    """Return the Python of the environment with PyFlink. Install the environment if it does not exist."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:8]
    folder = _cache() / f"flink-{VERSION}-{digest}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        say(f"installing Flink {VERSION} into {folder} (once; about 850 MB)")
        _run(_python(), "-P", "-m", "venv", "--clear", str(folder))
        install(str(python), REQUIREMENTS)
        ready.touch()
    return python


def install(python: str, requirements: Path) -> None:
    """Install the packages of `requirements` from wheels with known hashes, so that no unknown code runs.

    Raises ChildFailed if a package has no such wheel.
    """
    _run(python, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary",
         ":all:", "--require-hashes", "--requirement", str(requirements))  # fmt: skip


def _cache() -> Path:
    named = os.environ.get("HEADGATE_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def _python() -> str:
    """Return a Python that PyFlink supports: this one, or another one in PATH. Raises ChildFailed if there is none."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    names = [f"python{major}.{minor}" for major, minor in PYTHONS]
    python = next(filter(None, map(shutil.which, names)), None)
    if python is None:
        raise ChildFailed(f"PyFlink {VERSION} needs {' or '.join(names)}; put one in PATH")
    return python


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"{' '.join(command)} took more than {INSTALL_TIMEOUT:g} s") from None
    if done.returncode:
        raise ChildFailed(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
