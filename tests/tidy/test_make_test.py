"""`scripts/test` in a small checkout, with tools that only log their arguments: what a machine needs for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The programs that the scripts run.
PROGRAMS = (
    *("bash", "env", "dirname", "mktemp", "getconf", "df", "tail", "chmod", "nice", "rm", "cat", "cksum"),
    *("mkdir", "touch", "sh", "sed", "date"),
)
VERSION_CHECK = 'if [ "$1" = -c ]; then exit {status}; fi\n'


class MachineWithTests:
    """A checkout whose tools log their names and arguments, and a PATH with few programs and without Python 3.11."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.path = folder / "bin"
        self._log = folder / "log"
        for name in ("scripts/test", "scripts/compat", "compat/lowest.txt"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.path.mkdir()
        for name in PROGRAMS:
            (self.path / name).symlink_to(str(shutil.which(name)))
        for name in ("ruff", "mypy", "lint-imports", "pytest"):
            self.add_tool(self.root / ".venv" / "bin" / name)
        self.add_tool(self.root / ".venv" / "bin" / "python", VERSION_CHECK.format(status=1))
        self.add_tool(self.root / "scripts" / "compiled")

    def add_tool(self, path: Path, before: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = path.relative_to(path.parents[2]) if path.is_relative_to(self.root) else path.name
        path.write_text(f"#!/bin/sh\n{before}echo {name} \"$@\" >>'{self._log}'\n")
        path.chmod(0o755)

    def add_oldest_environment(self) -> None:
        """Add an environment that `scripts/compat` takes for a complete one."""
        folder = self.root / ".venv-compat" / "lowest"
        self.add_tool(folder / "bin" / "python")
        ready = subprocess.run(["bash", "-c", "{ cat compat/lowest.txt; pwd -P; } | cksum"], cwd=self.root,
                               capture_output=True, text=True, check=True)  # fmt: skip
        (folder / ".ready").write_text(ready.stdout)

    def run(self) -> tuple[int, str, list[str]]:
        """Run the script. Return its exit code, its messages, and what ran with the environment of oldest versions."""
        environment = {**os.environ, "PATH": str(self.path), "HOME": str(self.root)}
        done = subprocess.run(["bash", "scripts/test", "tests/some"], env=environment, cwd=self.root,
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        runs = [line for line in self._log.read_text().splitlines() if line.startswith("lowest/bin/python")]
        return done.returncode, done.stderr, runs


@pytest.fixture
def machine(tmp_path: Path) -> MachineWithTests:
    return MachineWithTests(tmp_path)


SKIPPED = "the tests with the oldest versions are skipped: compat: no Python 3.11 "


def test_without_the_oldest_python_a_part_is_skipped_and_the_rest_passes(machine: MachineWithTests) -> None:
    machine.add_tool(machine.path / "python3.12")
    code, messages, runs = machine.run()
    assert code == 0, messages
    assert SKIPPED in messages
    assert messages.endswith("all passed\n")
    assert runs == []


@pytest.mark.parametrize("found", ["in PATH", "in the environment of the checkout"])
def test_with_the_oldest_python_the_part_runs(machine: MachineWithTests, found: str) -> None:
    if found == "in PATH":
        machine.add_tool(machine.path / "python3.11", VERSION_CHECK.format(status=0))
    else:
        machine.add_tool(machine.root / ".venv" / "bin" / "python", VERSION_CHECK.format(status=0))
    machine.add_oldest_environment()
    code, messages, runs = machine.run()
    assert code == 0, messages
    assert SKIPPED not in messages
    assert len(runs) == 1
    assert "-m pytest" in runs[0]


def test_an_environment_that_cannot_be_built_is_an_error(machine: MachineWithTests) -> None:
    machine.add_tool(machine.path / "python3.11", VERSION_CHECK.format(status=0))
    code, messages, _ = machine.run()  # the tool that is to install uv only logs
    assert code != 0
    assert "building .venv-compat/lowest" in messages
