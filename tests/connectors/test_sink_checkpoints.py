"""Sinks after checkpoints, restarts and kills: every row up to the last complete checkpoint is visible once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import headgate as hg
from headgate.connectors.connector import Claim, Sink
from headgate.connectors.file_sinks import file_sink
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.errors import ResultsGone, Superseded
from headgate.ownership import Program
from tests.connectors.conftest import start, take_over, write_sink, writer_context

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
MAKERS = [hg.sinks.parquet, hg.sinks.csv]


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": f"k{value % 3}", "v": value} for value in values], SCHEMA)


def files(root: Path) -> list[str]:
    """Return the names of all files except for the ledger's."""
    names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(name) for name in names if name.parts[0] != ".headgate")


def hidden(root: Path) -> list[str]:
    return [name for name in files(root) if os.path.basename(name).startswith("_")]


def rows(root: Path) -> list[int]:
    """Return the values in all visible files."""
    visible = [root / name for name in files(root) if name not in hidden(root)]
    return sorted(
        value
        for path in visible
        for value in ds.dataset(path, format=path.suffix[1:]).to_table(columns=["v"])["v"].to_pylist()
    )


def stored(value: Any) -> Any:
    """Return a value as it comes back from a checkpoint."""
    return json.loads(json.dumps(value))


def prepared(sink: FileSink) -> FileSink:
    start(sink, SCHEMA)
    return sink


def in_another_program(sink: FileSink, path: Path, **options: Any) -> FileSink:
    other = hg.sinks.parquet(path, **options)
    other.resume("job", SCHEMA, stored(sink.prepared()))
    take_over(other)
    return other


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("partition_by", [(), "k"])
def test_each_checkpoint_shows_the_rows_before_it(
    tmp_path: Path, make: Callable[..., FileSink], partition_by: Any
) -> None:
    sink = prepared(make(tmp_path, partition_by=partition_by))
    writer = sink.writer(writer_context(SCHEMA))
    assert writer.flush(1) is None
    sink.commit([None])
    sink.commit([])
    writer.write(batch(1, 2))
    second = stored(writer.flush(2))
    writer.write(batch(3))
    assert rows(tmp_path) == []
    sink.commit([second])
    assert rows(tmp_path) == [1, 2]
    writer.write(batch(4))
    sink.commit([second, stored(writer.finish())])
    writer.close()
    sink.finish()
    assert (rows(tmp_path), hidden(tmp_path)) == ([1, 2, 3, 4], [])


def test_a_job_with_rows_in_its_first_checkpoint_only_gets_no_file_for_the_schema(tmp_path: Path) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path))
    writer = sink.writer(writer_context(SCHEMA))
    writer.write(batch(1))
    sink.commit([writer.flush(1)])
    sink.commit([writer.finish()])
    sink.finish()
    assert len(files(tmp_path)) == 1


class Fragile(fs.FileSystemHandler):
    """A filesystem that stops, as if the process were killed, before the n-th operation that changes something."""

    def __init__(self, operations: int) -> None:
        self._real = fs.LocalFileSystem()
        self._remaining = operations

    def _change(self) -> None:
        if not self._remaining:
            raise OSError("killed")
        self._remaining -= 1

    def get_type_name(self) -> str:
        return "fragile"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return list(self._real.get_file_info(paths))

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        return list(self._real.get_file_info(selector))

    def create_dir(self, path: str, recursive: bool) -> None:
        self._change()
        self._real.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._change()
        self._real.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        self._change()
        self._real.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._change()
        self._real.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self._change()
        self._real.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        return self._real.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self._real.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._change()
        return pa.PythonFile(open(path, "wb"), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


def killed_after(operations: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> bool:
    """Kill `act` before that many operations, and return whether it had ended before."""
    filesystem = fs.PyFileSystem(Fragile(operations))
    with monkeypatch.context() as patch:
        patch.setattr(file_sink, "locate", lambda path: (filesystem, path))
        try:
            act()
        except hg.SinkError as error:
            if "killed" in str(error):
                return False
            raise
    return True


@pytest.mark.parametrize("partition_by", [(), "k"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_kill_between_any_two_operations_of_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: Any, empty: bool
) -> None:
    """The next program repeats the commit, with a sink of its own."""
    kills = 0
    for operations in range(50):
        out = tmp_path / f"{operations}"
        first = prepared(hg.sinks.parquet(out, partition_by=partition_by))
        parts: list[list[pa.RecordBatch]] = [[], []] if empty else [[batch(1, 2, 3)], [batch(4, 5)]]
        pending = stored(write_sink(first, parts, SCHEMA))

        def end(sink: FileSink, pending: Any = pending) -> None:
            sink.commit(pending)
            sink.finish()

        def to_the_end(first: FileSink = first, out: Path = out, end: Any = end) -> None:
            end(in_another_program(first, out, partition_by=partition_by))

        kills += not (whole := killed_after(operations, monkeypatch, to_the_end))
        end(in_another_program(first, out, partition_by=partition_by))
        assert (rows(out), hidden(out)) == ([] if empty else [1, 2, 3, 4, 5], [])
        assert len(files(out)) == (1 if empty else 5 if partition_by else 2)
        if whole:
            break
    assert whole
    assert kills == (3 if empty else 5 if partition_by else 2)


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_a_run_that_gets_rows_when_it_is_resumed_leaves_no_empty_file(tmp_path: Path, partition_by: Any) -> None:
    first = prepared(hg.sinks.parquet(tmp_path / "out", partition_by=partition_by))
    first.commit(stored(write_sink(first, [[], []], SCHEMA)))
    first.finish()
    [empty] = files(tmp_path / "out")
    second = in_another_program(first, tmp_path / "out", partition_by=partition_by)
    second.commit(stored(write_sink(second, [[batch(1, 2)]], SCHEMA)), 2)
    second.finish()
    assert rows(tmp_path / "out") == [1, 2]
    assert empty not in files(tmp_path / "out")


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_a_kill_between_any_two_operations_of_a_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: Any
) -> None:
    for operations in range(50):
        out = tmp_path / f"{operations}"
        first = prepared(hg.sinks.parquet(out, partition_by=partition_by))
        writer = first.writer(writer_context(SCHEMA, checkpoint=1))
        writer.write(batch(1, 2, 3))
        pending = [stored(writer.flush(1))]
        writer.write(batch(4, 5))
        writer.flush(2)

        def roll_back(first: FileSink = first, out: Path = out, pending: Any = pending) -> None:
            in_another_program(first, out, partition_by=partition_by).rollback(pending, 1)

        whole = killed_after(operations, monkeypatch, roll_back)
        roll_back()
        assert (rows(out), hidden(out)) == ([1, 2, 3], [])
        if whole:
            break
    assert whole
    assert operations == (5 if partition_by else 2)


@pytest.mark.parametrize("partition_by", [(), "k"])
@pytest.mark.parametrize("program", ["the same", "another"])
def test_files_of_an_attempt_that_was_given_up_are_never_visible(
    tmp_path: Path, partition_by: Any, program: str
) -> None:
    """Its process was stopped, not killed. What it writes later is never visible, and removed at the end."""
    sink = prepared(hg.sinks.parquet(tmp_path, partition_by=partition_by))
    old = sink.writer(writer_context(SCHEMA, checkpoint=1))
    old.write(batch(1, 2))
    first = stored(old.flush(1))
    old.write(batch(3, 4))
    # The program is killed when checkpoint 1 is complete, and before the commit.
    if program == "another":
        sink = in_another_program(sink, tmp_path, partition_by=partition_by, mode="overwrite")
    sink.rollback([first], 1)
    assert (rows(tmp_path), hidden(tmp_path)) == ([1, 2], [])
    attempt = 1 if program == "the same" else 0
    new = sink.writer(writer_context(SCHEMA, attempt=attempt, checkpoint=2))
    new.write(batch(3, 4))
    second = stored(new.flush(2))
    late = old.flush(2)
    assert late
    assert not set(late) & {*first, *second}
    sink.commit([second])
    old.write(batch(5, 6))
    new.write(batch(5, 6))
    third = stored(new.finish())
    assert not set(old.finish() or ()) & {*first, *second, *third}
    sink.commit([third])
    sink.finish()
    old.close()
    assert (rows(tmp_path), hidden(tmp_path)) == ([1, 2, 3, 4, 5, 6], [])


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_a_failed_job_leaves_the_rows_of_its_last_checkpoint(tmp_path: Path, partition_by: Any) -> None:
    out = tmp_path / "out"
    sink = prepared(hg.sinks.parquet(out, partition_by=partition_by))
    writer = sink.writer(writer_context(SCHEMA, checkpoint=1))
    writer.write(batch(1))
    sink.commit([writer.flush(1)])
    writer.write(batch(4))
    second = writer.flush(2)
    writer.write(batch(2))
    writer.flush(3)
    sink.abort([second], 2)
    assert (rows(out), hidden(out)) == ([1, 4], [])
    assert sorted(os.listdir(out)) == [".headgate", *(["k=k1"] if partition_by else files(out))]


def test_a_job_that_fails_before_its_first_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path / "out"))
    sink.rollback([], 0)
    writer = sink.writer(writer_context(SCHEMA, attempt=1, checkpoint=1))
    writer.write(batch(1))
    writer.flush(1)
    sink.abort()
    assert os.listdir(tmp_path) == []


def test_resuming_needs_the_folder_at_the_same_path(tmp_path: Path) -> None:
    value = stored(prepared(hg.sinks.parquet(tmp_path / "a")).prepared())
    with pytest.raises(hg.SinkError, match=r"/b: the rows up to the checkpoint are in .*/a; give the sink that path"):
        hg.sinks.parquet(tmp_path / "b").resume("job", SCHEMA, value)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(hg.SinkError, match="/a: the folder is gone, with the rows up to the checkpoint"):
        hg.sinks.parquet(tmp_path / "a").resume("job", SCHEMA, value)


def test_finished_files_that_were_moved_are_named_and_the_others_shown(tmp_path: Path) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path))
    pending = []
    for value in range(3):
        writer = sink.writer(writer_context(SCHEMA, subtask=value))
        writer.write(batch(value))
        pending.append(stored(writer.finish()))
    sink.commit(pending[:2])
    moved = [tmp_path / names[0].removeprefix("_") for names in pending[:2]]
    for path in moved:
        path.unlink()
    programs: list[Callable[[], Any]] = [lambda: sink, lambda: in_another_program(sink, tmp_path)]
    for program in programs:
        with pytest.raises(ResultsGone, match=rf"{moved[0]} \(and 1 others\): is gone, with rows of a check"):
            program().rollback(pending, 1)
        assert (rows(tmp_path), hidden(tmp_path)) == ([2], [])


def test_files_of_older_checkpoints_may_be_joined_elsewhere(tmp_path: Path) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path, partition_by="k"))
    writer = sink.writer(writer_context(SCHEMA))
    for number, value in enumerate((0, 1), 1):
        writer.write(batch(value))
        pending = [writer.flush(number)]
        sink.commit(pending, number)
    shutil.rmtree(tmp_path / "k=k0")
    other = in_another_program(sink, tmp_path, partition_by="k")
    other.rollback(pending, 2)
    other.finish()
    assert rows(tmp_path) == [1]


def test_files_that_the_sink_did_not_write_are_not_touched(tmp_path: Path) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path / "out"))
    writer = sink.writer(writer_context(SCHEMA))
    writer.write(batch(1))
    [name] = writer.flush(1)
    (tmp_path / name).write_text("a foreign file")
    (tmp_path / "out" / "_other").touch()
    before = sorted(tmp_path.rglob("*"))
    for wrong in (f"../{name}", f"{tmp_path}/{name}", f"k=1/../../{name}", f"./{name}", "_other", "", 5, None):
        with pytest.raises(hg.SinkError, match=r"is not a file of this sink \(run .*\); start from another"):
            sink.commit([[wrong]], 3)  # type: ignore[list-item]
    assert sorted(tmp_path.rglob("*")) == before
    for run in ("../../x", "", 5):
        with pytest.raises(hg.SinkError, match=r"/out: .* is not a run of a sink"):
            hg.sinks.parquet(tmp_path / "out").resume("job", SCHEMA, {"path": sink.path, "run": run})


def delivered(sink: Sink, checkpoint: int, *batches: Sequence[int]) -> None:
    for values in batches:
        sink.deliver(batch(*values), checkpoint)


def test_collect_has_each_row_once_after_a_restart() -> None:
    sink = hg.sinks.collect(limit=6)
    sink.prepare("job", SCHEMA)
    delivered(sink, 1, (1, 2), (3,))
    delivered(sink, 2, (4,))
    delivered(sink, 3, (5, 6))
    assert sink.full
    sink.rollback([], 2)
    sink.rollback([], 2)
    assert (sink.to_table()["v"].to_pylist(), sink.rows, sink.full) == ([1, 2, 3, 4], 4, False)
    delivered(sink, 3, (5, 6), (7,))
    assert sink.to_table()["v"].to_pylist() == [1, 2, 3, 4, 5, 6]
    sink.abort([], 2)
    assert sink.rows == 6, "what a job that ended early had collected stays"
    sink.rollback([], 0)
    assert sink.to_table() == SCHEMA.empty_table()


def test_for_each_batch_gets_the_checkpoint_of_the_rows() -> None:
    seen = []
    sink = hg.sinks.for_each_batch(lambda rows, info: seen.append((rows["v"][0].as_py(), info.checkpoint_id)))
    writer = sink.writer(writer_context(SCHEMA, checkpoint=5))
    for value, checkpoint in [(1, 5), (2, 6), (3, 8)]:
        writer.write(batch(value))
        assert writer.flush(checkpoint) is None
    writer.write(batch(4))
    assert seen == [(1, 5), (2, 6), (3, 7), (4, 9)]


def claim(run: str, home: Path, *referenced: Any, epoch: int = 1) -> Claim:
    """Of a job whose checkpoints are in `home`, and name these runs of sinks."""
    return Claim(
        program=Program.this(run), epoch=epoch, check=lambda: None, home=str(home), referenced=list(referenced)
    )


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_files_that_a_program_left_before_its_first_checkpoint_are_removed(tmp_path: Path, partition_by: Any) -> None:
    out, home = tmp_path / "out", tmp_path / "checkpoints"
    lost = start(hg.sinks.parquet(out, partition_by=partition_by), SCHEMA, claim("lost", home))
    lost.writer(writer_context(SCHEMA)).write(batch(*range(200_000)))
    assert hidden(out)
    others = start(hg.sinks.parquet(out, mode="append"), SCHEMA, claim("other", tmp_path / "elsewhere"))
    kept = start(hg.sinks.parquet(out, mode="append"), SCHEMA, claim("kept", home, epoch=2))
    assert hidden(out) == []
    for sink in (others, kept):
        write_sink(sink, [[batch(1)]], SCHEMA)
    again = start(hg.sinks.parquet(out, mode="append"), SCHEMA, claim("again", home, stored(kept.prepared()), epoch=3))
    assert len(hidden(out)) == 2, "those of another job, and of a run that a checkpoint names"
    assert sorted(os.listdir(out / ".headgate")) == sorted(sink.prepared()["run"] for sink in (others, kept, again))
    with pytest.raises(Superseded):
        lost.commit([None], 1)


def test_a_superseded_program_removes_what_it_wrote_after_its_run_was_given_up(tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "checkpoints"
    older = start(hg.sinks.parquet(out), SCHEMA, claim("older", home))
    newer = start(hg.sinks.parquet(out), SCHEMA, claim("newer", home, epoch=2))
    write_sink(older, [[batch(1)]], SCHEMA)
    write_sink(newer, [[batch(2)]], SCHEMA)
    older.superseded()
    [name] = hidden(out)
    assert newer.prepared()["run"] in name


def test_a_superseded_program_leaves_hidden_files_to_the_one_that_resumed_its_run(tmp_path: Path) -> None:
    """Once that one has finished, no other program removes them."""
    older = prepared(hg.sinks.parquet(tmp_path))
    newer = in_another_program(older, tmp_path)
    write_sink(older, [[batch(1)]], SCHEMA)
    older.superseded()
    assert len(hidden(tmp_path)) == 1
    newer.finish()
    assert hidden(tmp_path) == []
    write_sink(older, [[batch(2)]], SCHEMA)
    older.superseded()
    assert hidden(tmp_path) == []


def test_nothing_is_removed_if_a_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    """The checkpoint may refer to the run."""
    lost = start(hg.sinks.parquet(tmp_path), SCHEMA, claim("lost", tmp_path / "home"))
    write_sink(lost, [[batch(1)]], SCHEMA)
    start(
        hg.sinks.parquet(tmp_path, mode="append"),
        SCHEMA,
        Claim(program=Program.this("again"), epoch=2, check=lambda: None, home=str(tmp_path / "home")),
    )
    assert len(hidden(tmp_path)) == 1


def test_an_older_program_cannot_change_the_results_of_a_newer_one(tmp_path: Path) -> None:
    """The older one neither shows nor removes files any more, and does not touch those of the newer one."""
    older = prepared(hg.sinks.parquet(tmp_path))
    first = older.writer(writer_context(SCHEMA, checkpoint=1))
    first.write(batch(1))
    committed = stored(first.flush(1))
    first.write(batch(2))
    uncommitted = stored(first.flush(2))
    newer = in_another_program(older, tmp_path)
    newer.rollback([committed], 1)
    again = write_sink(newer, [[batch(2)]], SCHEMA)
    for late in (partial(older.commit, [uncommitted], 2), older.finish, partial(older.rollback, [committed], 1),
                 partial(older.abort, [committed], 1)):  # fmt: skip
        with pytest.raises(Superseded, match="another program took over"):
            late()
    assert (rows(tmp_path), len(hidden(tmp_path))) == ([1], 1)
    newer.commit(again, 2)
    newer.finish()
    assert (rows(tmp_path), hidden(tmp_path)) == ([1, 2], [])


def test_a_sink_records_the_last_visible_checkpoint(tmp_path: Path) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path))
    writer = sink.writer(writer_context(SCHEMA, checkpoint=1))
    assert sink.published_after(0, "") == 0
    sink.commit([None], 1)
    assert sink.published_after(0, "") == 0, "nothing was there to show"
    writer.write(batch(1))
    sink.commit([writer.flush(2)], 2)
    for known in (sink, in_another_program(sink, tmp_path)):
        assert [known.published_after(number, "") for number in (1, 2, 3)] == [2, 0, 0]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"checkpoint": -1}', '{"checkpoint": "7"}'])
def test_a_damaged_ledger_is_named(tmp_path: Path, content: str) -> None:
    sink = prepared(hg.sinks.parquet(tmp_path))
    note = next((tmp_path / ".headgate").glob("*/1.note"))
    note.write_text(content)
    with pytest.raises(hg.SinkError, match="restore it, or write to another folder"):
        sink.published_after(1, "")
