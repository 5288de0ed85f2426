"""`scripts/bootstrap` in a small checkout, with a Python and a Java that only log their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BOOTSTRAP = Path(__file__).parents[2] / "scripts" / "bootstrap"


class Checkout:
    """A checkout with an environment that was made in this folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(BOOTSTRAP, self.root / "scripts")
        for name in ("requirements.lock", "pyproject.toml"):
            (self.root / name).write_text("")
        self._log = folder / "log"
        self.java = folder / "java" / "bin" / "java"
        self.set_java("17.0.15")
        self.python = folder / "python"
        self._script(self.python, f"echo \"$@\" >>'{self._log}'")
        (self.root / ".venv" / "bin").mkdir(parents=True)
        shutil.copy(self.python, self.root / ".venv" / "bin" / "python")
        made = f"command = /usr/bin/python3 -m venv --clear {self.root.resolve() / '.venv'}\n"
        (self.root / ".venv" / "pyvenv.cfg").write_text(made)

    def set_java(self, version: str) -> None:
        self._script(self.java, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")

    def _script(self, path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def set_up(self) -> tuple[int, str, list[str]]:
        """Run the script. Return its exit code, its messages, and the modules that it ran with Python."""
        self._log.write_text("")
        environment = {**os.environ, "JAVA_HOME": str(self.java.parents[1]), "PYTHON": str(self.python)}
        command = [str(self.root / "scripts" / "bootstrap")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == ""  # since a command's report may go there
        runs = [line for line in self._log.read_text().splitlines() if line.startswith("-m")]
        return done.returncode, done.stderr, [" ".join(run.split()[1:3]) for run in runs]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


INSTALLED = ["pip install", "pip install"]


def test_it_installs_once_and_again_when_the_lock_file_changes(checkout: Checkout) -> None:
    assert checkout.set_up() == (0, "setup: installing the locked dependencies into .venv\n", INSTALLED)
    assert checkout.set_up() == (0, "", [])
    (checkout.root / "requirements.lock").write_text("numpy")
    assert checkout.set_up()[2] == INSTALLED


def test_every_run_reports_a_java_that_is_too_old(checkout: Checkout) -> None:
    checkout.set_up()
    checkout.set_java("1.8.0_402")
    for _ in range(2):
        code, messages, runs = checkout.set_up()
        assert code == 1
        assert "holds no Java 17 or newer; correct it or unset it" in messages
        assert runs == []


def test_an_environment_without_its_python_is_made_again(checkout: Checkout) -> None:
    checkout.set_up()
    python = checkout.root / ".venv" / "bin" / "python"
    python.write_text("#!/no/such/python\n")
    code, _, runs = checkout.set_up()
    assert runs == ["venv --clear"]
    assert code != 0  # this Python only logs the command
    shutil.copy(checkout.python, python)
    assert checkout.set_up() == (0, "", [])


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.set_up()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.set_up()[::2] == (0, ["venv --clear", *INSTALLED])


def test_a_copied_checkout_gets_an_environment_of_its_own(checkout: Checkout) -> None:
    checkout.set_up()
    copy = checkout.root.with_name("copy")
    shutil.copytree(checkout.root, copy)
    checkout.root = copy
    assert checkout.set_up()[2] == ["venv --clear", *INSTALLED]
