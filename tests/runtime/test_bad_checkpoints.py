"""Checkpoints that are torn, unreadable, foreign or of another job: one clear error, or the one before; nothing in the
folder is touched."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import StorageError
from headgate.ownership import Ownership, Program
from headgate.runtime.checkpointing import resumption
from headgate.runtime.task import restore
from headgate.state.checkpoint_metadata import LAST_ID
from tests import exactly_once
from tests.exactly_once import ROWS, attempts, build, committed, environment, expected, fails_once
from tests.runtime.faults import Commit, Pull, committing, gated, open_gate
from tests.runtime.jobs import eventually
from tests.state.checkpoints import sealed


def start(folder: Path, *pulls: Pull, **options: Any) -> hg.JobHandle:
    """In threads, with a restart at once."""
    env = environment(folder, hg.LocalDeployment(2, processes=False), restart=hg.restart.fixed(9, delay=0))
    return build(env, folder, source=gated(folder, *pulls), **options).execute_async()


def complete(folder: Path) -> list[Path]:
    """The folders of complete checkpoints, the newest first."""
    found = [path.parent for path in (folder / "checkpoints").glob("*/chk-*/_metadata")]
    return sorted(found, key=lambda path: -int(path.name.split("-")[1]))


def pending(checkpoint: Path) -> Any:
    """What sinks were to commit with it."""
    return json.loads((checkpoint / "_metadata").read_text())["checkpoint"]["pending"]


def nothing_new(folder: Path) -> bool:
    """The newest checkpoint came when all rows there were had been committed."""
    found = complete(folder)
    return len(found) > 1 and bool(committed(folder)) and not pending(found[0])


def bytes_below(folder: Path) -> dict[str, bytes]:
    """All files but those that say who owns what."""
    files = (path for path in folder.rglob("*") if path.is_file() and not {"owners", ".headgate"} & set(path.parts))
    return {str(path): path.read_bytes() for path in files}


def state_file(checkpoint: Path) -> Path:
    return next(path for path in sorted(checkpoint.glob("*.state")) if path.stat().st_size > 100)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that was cancelled after some checkpoints."""
    folder = tmp_path_factory.mktemp("stopped")
    job = start(folder)
    eventually(lambda: nothing_new(folder), 60)
    job.cancel()
    return folder


def tear(checkpoint: Path) -> None:
    file = state_file(checkpoint)
    file.write_bytes(file.read_bytes()[:-1])


def change(checkpoint: Path) -> None:
    file = state_file(checkpoint)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove(checkpoint: Path) -> None:
    state_file(checkpoint).unlink()


def make_unreadable(checkpoint: Path) -> None:
    file = state_file(checkpoint)
    file.unlink()
    file.mkdir()


def tear_metadata(checkpoint: Path) -> None:
    file = checkpoint / "_metadata"
    file.write_bytes(file.read_bytes()[:-20])


def change_metadata(checkpoint: Path) -> None:
    file = checkpoint / "_metadata"
    file.write_text(file.read_text().replace('"duration": ', '"duration": 1'))


def put_something_else(checkpoint: Path) -> None:
    (checkpoint / "_metadata").write_text('{"version": 3}')


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (tear, r"\.state: has \d+ bytes, and \d+ were written: it is incomplete; start from another checkpoint"),
        (change, r"\.state: was changed after it was written"),
        (remove, r"\.state: cannot be read, it does not exist"),
        (make_unreadable, r"\.state: cannot be read"),
        (tear_metadata, "_metadata: is incomplete, or is not the metadata of a checkpoint"),
        (change_metadata, "_metadata: was changed after it was written"),
        (put_something_else, "_metadata: is not the metadata of a checkpoint"),
    ],
)
def test_a_checkpoint_that_is_not_as_it_was_written(
    stopped: Path, tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    newest = complete(tmp_path)[0]
    damage(newest)
    before = bytes_below(tmp_path)
    with pytest.raises(hg.CheckpointError, match=says) as caught:
        build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute(resume=str(newest))
    assert str(newest) in caught.value.message
    assert "\n" not in caught.value.message
    assert bytes_below(tmp_path) == before


def test_too_few_key_groups_are_named_before_too_little_memory(stopped: Path) -> None:
    """More memory would not help."""
    env = environment(stopped, hg.LocalDeployment(2, processes=False), 200, network_memory="1 mb")
    with pytest.raises(hg.CheckpointError, match=r"has 128 key groups for .*; the parallelism is 200: lower it"):
        build(env, stopped, source=gated(stopped)).execute(resume="latest")


def test_other_windows_are_named_without_the_files_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(tmp_path)
    eventually(lambda: nothing_new(tmp_path), 60)
    job.cancel()
    monkeypatch.setattr(exactly_once, "SMALL", exactly_once.SMALL * 2)
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False))
    with pytest.raises(hg.CheckpointError) as caught:
        build(env, tmp_path, source=gated(tmp_path)).execute(resume=str(complete(tmp_path)[0]))
    assert re.match(r"checkpoint \d+: window 'window#1' had tumble\(.*\), and has tumble\(", caught.value.message)
    assert str(tmp_path) not in caught.value.message


def another_type(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "key", batch["key"].cast(pa.int32()))


def test_a_slip_of_the_pen(tmp_path: Path) -> None:
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False))
    build(env, tmp_path)
    with pytest.raises(hg.CheckpointError, match=r"lastest: .*; did you mean resume='latest'\?"):
        env.execute(resume="lastest")


def test_state_of_another_job_graph(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    before = bytes_below(tmp_path)

    def refused(says: str, build_job: Callable[[hg.StreamEnvironment], Any], **options: Any) -> None:
        env = environment(tmp_path, hg.LocalDeployment(2, processes=False), **options)
        build_job(env)
        with pytest.raises(hg.CheckpointError, match=says):
            env.execute(resume="latest")
        assert bytes_below(tmp_path) == before

    def other(env: hg.StreamEnvironment) -> None:
        env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.parquet(tmp_path / "other"))

    def with_one_more(env: hg.StreamEnvironment) -> None:
        build(env, tmp_path, lambda batch: batch, source=gated(tmp_path))

    def with_another_type(env: hg.StreamEnvironment) -> None:
        stream = env.from_source(gated(tmp_path), watermark=hg.Watermark("at"))
        key = stream.schema.set(0, pa.field("key", pa.int32()))
        typed = stream.map_batches(another_type, schema=key)
        typed.key_by("key").window(hg.tumble(1)).aggregate(n=hg.count()).uid("window#1").sink_to(hg.sinks.null())

    refused("which this job does not have", other)
    refused("which this job does not have: give that node its old name and place", with_one_more)
    refused("which now are", with_another_type)
    refused("into 128 groups, and this job into 64", lambda env: build(env, tmp_path, source=gated(tmp_path)),
            max_parallelism=64)  # fmt: skip


@pytest.mark.parametrize(("part", "value"), [("prepared", [1]), ("pending", [5])])
def test_what_a_sink_cannot_read_of_a_checkpoint(stopped: Path, tmp_path: Path, part: str, value: Any) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    newest = complete(tmp_path)[0]
    body = json.loads((newest / "_metadata").read_bytes())["checkpoint"]
    [sink] = body["prepared"]
    body["prepared"][sink]["path"] = str(tmp_path / "out")
    body[part][sink] = value
    (newest / "_metadata").write_bytes(sealed(body))
    before = bytes_below(tmp_path)
    with pytest.raises(hg.SinkError, match=rf"cannot resume from checkpoint {body['id']}: TypeError: "):
        build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path, source=gated(tmp_path)).execute(
            resume=str(newest)
        )
    assert bytes_below(tmp_path) == before


def test_a_checkpoint_after_which_there_are_no_numbers(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(complete(stopped)[0], tmp_path / "kept")
    body = json.loads((tmp_path / "kept" / "_metadata").read_bytes())["checkpoint"]
    (tmp_path / "kept" / "_metadata").write_bytes(sealed({**body, "id": LAST_ID}))
    with pytest.raises(hg.CheckpointError, match=f"checkpoint {LAST_ID} leaves no numbers for later checkpoints"):
        build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path, source=gated(tmp_path)).execute(
            resume=str(tmp_path / "kept")
        )


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(hg.CheckpointError, match="checkpoints/job: cannot be made: .*; part of that path is a file"):
        build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute()
    assert not (tmp_path / "out").exists()


def test_the_latest_is_damaged_and_nothing_was_committed_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = start(tmp_path)
    eventually(lambda: nothing_new(tmp_path), 60)
    job.cancel()
    newest = complete(tmp_path)[0]
    tear(newest)
    open_gate(tmp_path)
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False))
    assert build(env, tmp_path, source=gated(tmp_path)).execute(resume="latest").rows_in == ROWS
    assert f"skips {newest}, with which nothing was committed: {newest}" in caplog.text
    assert committed(tmp_path) == expected()


def test_the_latest_is_damaged_and_sinks_have_committed_with_it(tmp_path: Path) -> None:
    """What they committed would come again."""
    stopped: list[int] = []

    def commit(really: Commit, names: Sequence[Any]) -> None:
        really(names)
        if any(names) and not stopped:
            stopped.append(1)
            job._master.cancel()

    job = start(tmp_path, sink=committing(hg.sinks.parquet(tmp_path / "out"), commit))
    with pytest.raises(hg.JobCancelled):
        job.wait(60)
    newest = complete(tmp_path)[0]
    assert pending(newest)
    tear(newest)
    before = bytes_below(tmp_path)
    sink = committing(hg.sinks.parquet(tmp_path / "out"), commit)
    env = build(
        environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path, source=gated(tmp_path), sink=sink
    )
    with pytest.raises(hg.CheckpointError, match=rf"{newest}: is damaged, see the warnings"):
        env.execute(resume="latest")
    assert bytes_below(tmp_path) == before


def test_the_latest_cannot_be_read_at_a_restart(tmp_path: Path) -> None:
    """The job starts once more, from the one before, where that is possible."""
    failed: list[Path] = []

    def fail() -> None:
        if not failed and nothing_new(tmp_path):
            failed.extend(complete(tmp_path)[:1])
            tear(failed[0])
            raise ValueError("once")

    job = start(tmp_path, fail)
    eventually(lambda: max(attempts(tmp_path), default=0) > 0, 60)
    open_gate(tmp_path)
    assert job.wait(60).restarts in (1, 2), "another checkpoint may be complete just before it fails"
    assert committed(tmp_path) == expected()


def test_no_checkpoint_can_be_read_at_a_restart(tmp_path: Path) -> None:
    fails = fails_once(tmp_path)

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return fails(batch)
        except ValueError:
            for file in tmp_path.glob("checkpoints/*/chk-*/*.state"):
                file.write_bytes(b"")
            raise

    job = build(environment(tmp_path, hg.LocalDeployment(1, processes=False), 1), tmp_path, function).execute_async()
    with pytest.raises(hg.CheckpointError, match=r"\.state"):
        job.wait(60)
    assert job.restarts == 1


def test_a_program_that_was_replaced_while_it_reads_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused meanwhile, and the new owner has removed the checkpoint."""
    job = start(tmp_path)
    eventually(lambda: nothing_new(tmp_path), 60)
    job.cancel()
    read = vars(restore)["read_state"]

    def late(file: Any) -> Any:
        for owners in tmp_path.glob("checkpoints/*/owners"):
            Ownership(str(owners), Program.this("the newer")).claim()
            for checkpoint in owners.parent.glob("chk-*"):
                shutil.rmtree(checkpoint, ignore_errors=True)
        return read(file)

    monkeypatch.setattr(restore, "read_state", late)
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False))
    with pytest.raises(hg.Superseded, match="run the newer"):
        build(env, tmp_path, source=gated(tmp_path)).execute(resume="latest")


@pytest.mark.parametrize("seen_by", ["the task", "the driver, too"])
def test_a_file_that_cannot_be_read_once_at_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seen_by: str
) -> None:
    """It is whole, so the strategy decides: the next read may be a better one."""

    def once(module: Any, name: str) -> None:
        work, calls = getattr(module, name), itertools.count()

        def fails(what: Any) -> Any:
            if not next(calls):
                raise StorageError(f"{what}: cannot be read: Input/output error")
            return work(what)

        monkeypatch.setattr(module, name, fails)

    once(restore, "read_state")
    if seen_by == "the driver, too":
        once(resumption, "verify_checkpoint")
    failed: list[int] = []

    def fail() -> None:
        if not failed and complete(tmp_path):
            failed.append(1)
            raise ValueError("once")

    job = start(tmp_path, fail)
    eventually(lambda: max(attempts(tmp_path), default=0) > 1, 60)
    open_gate(tmp_path)
    assert job.wait(60).restarts == 2
    assert committed(tmp_path) == expected()
    assert "Input/output error" in caplog.text


def test_no_restart_goes_on_from_the_checkpoint_of_another_run(stopped: Path, tmp_path: Path) -> None:
    """The job started afresh, and what it has of its own is damaged."""
    shutil.copytree(stopped / "checkpoints", tmp_path / "checkpoints")
    others = set(complete(tmp_path))

    def fail() -> None:
        if own := set(complete(tmp_path)) - others:
            for file in (file for checkpoint in own for file in checkpoint.glob("*.state")):
                file.write_bytes(b"")
            raise ValueError("damaged")

    env = environment(tmp_path, hg.LocalDeployment(2, processes=False), restart=hg.restart.fixed(9, delay=0))
    job = build(env, tmp_path, source=gated(tmp_path, fail, before=2000)).execute_async()
    with pytest.raises(hg.CheckpointError, match=r"\.state: has 0 bytes"):
        job.wait(60)


def test_finished_files_that_are_moved_end_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing brings them back: no restart does."""

    def commit(really: Commit, names: Sequence[Any]) -> None:
        really(names)
        for file in (tmp_path / "out").glob("part-*"):
            file.rename(tmp_path / file.name)
            raise ValueError("just then")

    job = start(tmp_path, sink=committing(hg.sinks.parquet(tmp_path / "out"), commit))
    with pytest.raises(hg.SinkError, match=r"out/part-.*\.parquet.*: is gone, .*; put it back and resume") as caught:
        job.wait(60)
    assert caught.value.message.count("is gone") == 1
    assert caplog.text.count("starts again") == 1, "when nobody knew yet"
