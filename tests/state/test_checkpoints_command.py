"""The command `headgate checkpoints` on real folders."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate import checkpoints_command as checkpoints
from headgate.cli import main
from headgate.errors import CheckpointError, printable
from headgate.state.checkpoint_metadata import Finished
from headgate.state.checkpoint_storage import CheckpointStorage, load_checkpoint, savepoint_folder, store, write_part
from headgate.state.snapshot import Snapshot, encode
from headgate.terminal import PlainConsole
from tests.state.checkpoints import make_checkpoint, metadata_of


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    """Return a storage with two complete checkpoints and an abandoned one."""
    storage = CheckpointStorage(tmp_path / "checkpoints", "delays")
    make_checkpoint(storage, 1)
    make_checkpoint(storage, 2)
    write_part(storage.folder_of(3), 0, "t", [b"given up"])
    return storage


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main(["checkpoints", *arguments, "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


def test_list(storage: CheckpointStorage, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, report = run(capsys, "list", str(tmp_path / "checkpoints"))
    assert code == 0
    assert [each["state"] for each in report] == ["not complete", "complete", "complete"]
    assert report[1] == {
        "uri": storage.folder_of(2), "id": 2, "job": "delays", "timestamp": 1700000000.5, "duration": 0.25, "size": 6,
        "tasks": 2, "state": "complete", "kind": "checkpoint",
    }  # fmt: skip
    Path(storage.folder_of(2), "_metadata").write_text("[" * 200_000)
    assert main(["checkpoints", "list", storage.folder]) == 0
    shown = capsys.readouterr().out
    assert "2023-11-14 22:13:20" in shown
    assert f"broken: {storage.folder_of(2)}/_metadata: is incomplete" in shown


def test_show_prints_what_is_in_a_checkpoint(storage: CheckpointStorage, capsys: pytest.CaptureFixture[str]) -> None:
    state = encode({"read#0": Snapshot(values={"position": [5, 10]})})
    make_checkpoint(storage, 4, state)
    code, report = run(capsys, "show", storage.folder)
    assert code == 0
    assert report["id"] == 4
    assert report["pending"] == {"out": [["_a", "_b"], ["_c"]]}
    assert report["positions"] == [
        {"source": "read#0", "subtask": 0, "position": {"position": [5, 10]}},
        {"source": "read#0", "subtask": 1, "position": 7},
    ]
    assert main(["checkpoints", "show", storage.folder_of(4)]) == 0
    shown = capsys.readouterr().out
    assert "read -> write[1]" in shown
    assert "finished" in shown
    assert "checkpoint 4 of job 'delays'" in shown


def test_show_goes_past_a_broken_one_and_says_so(
    storage: CheckpointStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    make_checkpoint(storage, 4, encode({}))
    Path(storage.folder_of(4), "_metadata").write_text("{")
    assert main(["checkpoints", "show", storage.folder]) == 1
    shown = capsys.readouterr().out
    assert "checkpoint 2 of job 'delays'" in shown
    assert f"broken: {storage.folder_of(4)}/_metadata: is incomplete" in shown
    with pytest.raises(CheckpointError, match="is incomplete"):  # nothing else was asked for
        checkpoints.main(["show", storage.folder_of(4)])


def test_verify(storage: CheckpointStorage, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, report = run(capsys, "verify", storage.folder)
    assert code == 0
    assert [each["state"] for each in report] == ["not complete", "complete", "complete"]
    [file] = storage.load(storage.folder_of(1)).files
    Path(file.path).write_bytes(b"other!")
    written = tmp_path / "report.json"
    assert main(["checkpoints", "verify", storage.folder, "--json", str(written)]) == 1
    said = f"{file.path}: was changed after it was written: its checksum differs; start from another checkpoint"
    assert said in capsys.readouterr().out
    assert [each["problems"] for each in json.loads(written.read_text())] == [[], [], [said]]
    Path(storage.folder_of(2), "_metadata").write_text("{")
    assert main(["checkpoints", "verify", storage.folder_of(2)]) == 1
    assert "chk-2/_metadata: is incomplete" in capsys.readouterr().out


def test_a_terminal_shows_what_is_being_read(storage: CheckpointStorage) -> None:
    for terminal in (True, False):
        written = io.StringIO()
        checkpoints._verify([storage.folder_of(1)], PlainConsole(file=written, force_terminal=terminal, width=500))
        assert (f"{storage.folder_of(1)}: reading" in written.getvalue()) == terminal
        assert f"{storage.folder_of(1)}: complete\n" in written.getvalue()


def test_a_savepoint(storage: CheckpointStorage, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A savepoint stays when checkpoints are removed, and is listed among the checkpoints of its job."""
    savepoint = savepoint_folder(tmp_path / "checkpoints", "delays", 4, "ab12")
    file = write_part(savepoint, 0, "read -> write[0]", [encode({})])
    made = replace(metadata_of(storage, 4, (file, Finished({"read#0": 7}))), kind="savepoint")
    assert store(savepoint, made) == savepoint
    storage.complete(replace(made, folder=savepoint))
    _, report = run(capsys, "list", storage.folder)
    assert [(each["uri"].rpartition("/")[2], each.get("kind")) for each in report] == [
        ("sp-4-ab12", "savepoint"), ("chk-4", "savepoint"), ("chk-3", None), ("chk-2", "checkpoint"),
        ("chk-1", "checkpoint"),
    ]  # fmt: skip
    assert main(["checkpoints", "show", savepoint]) == 0
    assert "savepoint 4 of job 'delays'" in capsys.readouterr().out
    make_checkpoint(storage, 5)
    storage.retain(keep=1)
    assert sorted(path.name for path in Path(storage.folder).iterdir()) == ["chk-5", "sp-4-ab12"]
    assert storage.next_id() == 6
    assert load_checkpoint(savepoint) == made
    assert run(capsys, "verify", savepoint)[0] == 0


def test_a_folder_without_checkpoints_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "list", str(tmp_path / "none")]) == 1
    assert "there are no checkpoints; give the folder" in capsys.readouterr().err
    assert main(["checkpoints", "show", str(tmp_path / "chk-1")]) == 1
    assert "is not a completed checkpoint" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["checkpoints", "remove", str(tmp_path)])


#: Names with markup, escapes and control characters.
NAMES = ["[red]job[/]", "[/nothing]", "a[bold", ":smile:", "\x1b]0;owned\x07\x1b[31m", "line\r\x9b2J", "\u202ereversed"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_and_not_markup_nor_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Unclosed markup once ended the command, and escapes once reached the terminal."""
    storage = CheckpointStorage(tmp_path / "checkpoints", name)
    state = encode({"read#0": Snapshot(values={"position": [name]})})
    file = write_part(storage.folder_of(1), 0, name, [state])
    metadata = metadata_of(storage, 1, (file,))
    vertices = (replace(metadata.vertices[0], name=name),)
    storage.complete(replace(metadata, vertices=vertices, pending={name: [name]}))
    torn = CheckpointStorage(tmp_path / "checkpoints", f"{name} torn")
    make_checkpoint(torn, 1)
    Path(torn.folder_of(1), "_metadata").write_text(json.dumps({"format": name}))
    moved = tmp_path / name.replace("/", "_")
    Path(storage.folder_of(1)).rename(moved)
    for arguments in (["list", str(moved)], ["show", str(moved)], ["verify", str(moved)], ["list", torn.folder],
                      ["verify", torn.folder]):  # fmt: skip
        main(["checkpoints", *arguments])
        captured = capsys.readouterr()
        shown = captured.out + captured.err
        assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(shown)
        if arguments == ["show", str(moved)]:
            assert "".join(shown.split()).count("".join(printable(name).split())) >= 4, shown


def test_credentials_of_an_old_checkpoint_are_not_shown(
    storage: CheckpointStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_part(storage.folder_of(5), 0, "t", [encode({})])
    metadata = metadata_of(storage, 5, (file,))
    storage.complete(replace(metadata, pending={"out": ["s3://key:s3cr3t@bucket/a"]}))
    for arguments in (["show", storage.folder], ["show", storage.folder, "--json", "-"]):
        main(["checkpoints", *arguments])
        captured = capsys.readouterr()
        assert "***" in captured.out
        assert "s3cr3t" not in captured.out + captured.err
