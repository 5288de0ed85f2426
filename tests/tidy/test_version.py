"""`headgate version`: what to tell when something goes wrong."""

from __future__ import annotations

import json

import pytest

from headgate.cli import main


def test_versions_to_read_and_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == lines
    assert lines.keys() >= {"headgate", "pyspark", "pyarrow", "numpy", "python"} and lines["package"] == "sources"


def test_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--jsom"]) == 2 and "usage" in capsys.readouterr().err
