"""`headgate version`, and what all commands have in common."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headgate.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]


def test_versions_are_printed_as_text_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert lines.keys() >= {"headgate", "pyspark", "pyarrow", "numpy", "python"}
    assert lines["package"] == "pure"
    for words in (["--json"], ["--json", "-"]):
        assert main(["version", *words]) == 0
        assert json.loads(capsys.readouterr().out) == lines
    assert main(["version", "--json", str(tmp_path / "versions.json")]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "versions.json").read_text()) == lines


def test_version_and_the_option_print_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    printed = capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == printed


def test_a_wheel_is_pure_unless_asked_for(tmp_path: Path) -> None:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True, timeout=60)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    (tmp_path / "site").mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "headgate.cli", "version", "--json"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["package"] == "pure"
    queries = "from headgate.bench.nexmark_queries.nexmark_case import _queries; print(len(_queries()[0]))"
    done = subprocess.run(
        [sys.executable, "-c", queries], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert int(done.stdout) > 10, done.stderr


def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["version", "--jsom"])
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert printed.err == ""
    assert printed.out.startswith(f"usage: headgate {command} ")
    assert "--json" in printed.out


def test_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "0 done, 1 failed or a target missed, 2 wrong arguments,\n130 interrupted." in capsys.readouterr().out
