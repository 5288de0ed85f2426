"""`--json PATH` of the commands: a path that cannot be written is refused before they run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headgate import json_option
from headgate.cli import COMMANDS, main
from headgate.errors import SinkError
from headgate.json_option import write_json

#: What a command needs before its options.
NEEDS = {"run": [__file__], "checkpoints": ["list", "/no/such"], "doctor": ["/no/such"]}


@pytest.mark.parametrize("command", [[name, *NEEDS.get(name, [])] for name in COMMANDS])
@pytest.mark.parametrize(
    ("path", "message"),
    [(".", "is a folder; name a file in it"), ("", "is a folder"), ("no/such/report.json", "there is no such folder")],
)
def test_a_bad_path_is_refused_before_the_command_runs(
    *,
    command: list[str],
    path: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json", path])
    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"--json: {path!r}" in printed
    assert message in printed
    assert list(tmp_path.iterdir()) == []


def test_a_path_without_write_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def no_right(path: Path, mode: int) -> bool:
        asked.append(path)
        return mode != os.W_OK

    monkeypatch.setattr(json_option.os, "access", no_right)  # type: ignore[attr-defined]  # root, as tests may run, has all rights
    (tmp_path / "old.json").write_text("{}")
    for name in ("old.json", "new.json"):
        with pytest.raises(SystemExit):
            main(["bench", "--json", str(tmp_path / name)])
        assert f"{name}' cannot be written" in capsys.readouterr().err
    assert asked == [tmp_path / "old.json", tmp_path]


def test_the_report_is_valid_json_at_the_given_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(None, {"a": 1})
    write_json("-", {"a": [1]})
    assert json.loads(capsys.readouterr().out) == {"a": [1]}
    write_json(str(tmp_path / "r.json"), {"a": None})
    assert json.loads((tmp_path / "r.json").read_text()) == {"a": None}
    write_json("-", {"p99": (float("nan"), 1.5), "ratio": float("inf")})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"p99": [None, 1.5], "ratio": None}
    with pytest.raises(SinkError, match="cannot write the report to .*: .*Is a directory"):
        write_json(str(tmp_path), {})
