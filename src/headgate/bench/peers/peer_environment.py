"""Environments for other engines: each has its own Python packages, which are installed on first use.

The packages are in `$HEADGATE_CACHE`. If that is not set, they are in `headgate` in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.bench.conversation import ChildFailed

INSTALL_TIMEOUT: Final = 1800.0


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """The packages of an engine: its name and version, and the file that pins its packages by hash."""

    engine: str
    version: str
    requirements: Path
    #: The versions of Python that the engine supports.
    pythons: Sequence[tuple[int, int]]
    #: About how much disk space the packages take, in MB.
    size: int

    def python(self, say: Callable[[str], None]) -> Path:
        """Return the Python of the environment. Install the environment if it does not exist. Raises ChildFailed."""
        digest = hashlib.sha256(self.requirements.read_bytes()).hexdigest()[:8]
        folder = cache() / f"{self.engine.lower()}-{self.version}-{digest}"
        python, ready = folder / "bin" / "python", folder / ".ready"
        if not ready.exists():
            say(f"installing {self.engine} {self.version} into {folder} (once; about {self.size} MB)")
            _run(self._base(), "-P", "-m", "venv", "--clear", str(folder))
            install(str(python), self.requirements)
            ready.touch()
        return python

    def _base(self) -> str:
        """Return a Python that the engine supports: this one, or another one in PATH. Raises ChildFailed."""
        if sys.version_info[:2] in self.pythons:
            return sys.executable
        names = [f"python{major}.{minor}" for major, minor in self.pythons]
        python = next(filter(None, map(shutil.which, names)), None)
        if python is None:
            raise ChildFailed(f"{self.engine} {self.version} needs {' or '.join(names)}; put one in PATH")
        return python


def install(python: str, requirements: Path) -> None:
    """Install the packages of `requirements` from wheels with known hashes, so that no unknown code runs.

    Raises ChildFailed if a package has no such wheel.
    """
    _run(python, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary",
         ":all:", "--require-hashes", "--requirement", str(requirements))  # fmt: skip


def cache() -> Path:
    """Return the folder for what is installed on first use."""
    named = os.environ.get("HEADGATE_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"{' '.join(command)} took more than {INSTALL_TIMEOUT:g} s") from None
    if done.returncode:
        raise ChildFailed(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
