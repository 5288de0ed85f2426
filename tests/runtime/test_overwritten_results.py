"""A job does not resume from a checkpoint whose rows another run has removed with mode="overwrite"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.state.checkpoint_storage import find_checkpoints
from tests.runtime.jobs import eventually, numbers

#: The first and the last rows reach the sink. So the checkpoints between them have no rows of their own that the sink
#: could miss.
ROWS: Final = 40_000
FIRST: Final = list(range(400))
LAST: Final = list(range(ROWS - 400, ROWS))
#: What the other run writes.
OTHERS: Final = list(range(5))
GONE: Final = r'out: the rows of checkpoint \d+ are gone.* mode="overwrite".*start without resume'


def job(folder: Path, mode: Any = "error", *, rows: int = ROWS, rate: float | None = None,
        checkpoints: str | None = "checkpoints", passes: bool = True) -> hg.StreamEnvironment:  # fmt: skip
    """Return a job that writes its first and its last rows into `folder`/out, or no rows."""
    options = {"checkpoint_dir": folder / checkpoints, "checkpoint_interval": "50 ms"} if checkpoints else {}
    env = hg.StreamEnvironment(
        parallelism=1, config=hg.Config(**options), deployment=hg.LocalDeployment(1, processes=False)
    )
    source = env.from_source(hg.sources.generate(numbers, rows=rows, rate=rate, batch_rows=4))

    def few(batch: pa.RecordBatch) -> pa.RecordBatch:
        ends = pc.or_(pc.less(batch["n"], len(FIRST)), pc.greater_equal(batch["n"], LAST[0]))
        return batch.filter(ends) if passes else batch.slice(0, 0)

    source.map_batches(few, schema=source.schema).sink_to(hg.sinks.parquet(folder / "out", mode=mode))
    return env


def shown(folder: Path) -> list[int]:
    """Return the rows of all visible files."""
    files = [str(path) for path in (folder / "out").glob("part-*")]
    return sorted(ds.dataset(files, format="parquet").to_table()["n"].to_pylist()) if files else []


def stop_early(folder: Path, mode: Any = "error") -> str:
    """Run a job until its first rows are visible, and stop it. Returns the folder of its newest checkpoint."""
    running = job(folder, mode, rate=4000).execute_async()
    eventually(lambda: len(shown(folder)) >= len(FIRST))
    running.stop()
    assert shown(folder) == FIRST
    return find_checkpoints(folder / "checkpoints")[0]


@pytest.fixture(name="checkpoint")
def stopped_job(tmp_path: Path) -> str:
    return stop_early(tmp_path)


def another_job(folder: Path) -> None:
    job(folder, "overwrite", rows=len(OTHERS), checkpoints="others").execute()


def without_checkpoints(folder: Path) -> None:
    job(folder, "overwrite", rows=len(OTHERS), checkpoints=None).execute()


def the_job_itself(folder: Path) -> None:
    job(folder, "overwrite", rows=len(OTHERS)).execute()


@pytest.mark.parametrize("overwrite", [another_job, without_checkpoints, the_job_itself])
def test_a_job_whose_rows_were_overwritten_does_not_resume(
    tmp_path: Path, checkpoint: str, overwrite: Callable[[Path], None]
) -> None:
    overwrite(tmp_path)
    assert shown(tmp_path) == OTHERS
    for _ in range(2):  # a refused program leaves nothing that the next one takes for a ledger
        with pytest.raises(hg.SinkError, match=GONE):
            job(tmp_path).execute(resume=checkpoint)
    assert shown(tmp_path) == OTHERS


@pytest.mark.usefixtures("checkpoint")
def test_latest_is_refused_too(tmp_path: Path) -> None:
    another_job(tmp_path)
    with pytest.raises(hg.SinkError, match=GONE):
        job(tmp_path).execute(resume="latest")


def test_rows_that_are_overwritten_while_a_program_takes_over_are_missed(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program finds the ledger, and sleeps until the other job has overwritten the results."""
    claim = FileSink.claim

    def slept(sink: FileSink, *arguments: Any) -> bool:
        monkeypatch.undo()
        another_job(tmp_path)
        return claim(sink, *arguments)

    monkeypatch.setattr(FileSink, "claim", slept)
    for _ in range(2):
        with pytest.raises(hg.SinkError, match=GONE):
            job(tmp_path).execute(resume=checkpoint)
    assert shown(tmp_path) == OTHERS


def test_it_resumes_if_the_user_allows_duplicates(tmp_path: Path, checkpoint: str) -> None:
    another_job(tmp_path)
    job(tmp_path).execute(resume=checkpoint, allow_duplicates=True)
    assert shown(tmp_path) == OTHERS + LAST
    job(tmp_path).execute(resume="latest")


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_job_resumes_whose_rows_are_there(tmp_path: Path, mode: Any) -> None:
    """Whatever its own mode is, and also when it has finished."""
    stop_early(tmp_path, mode)
    for _ in range(3):
        job(tmp_path, mode).execute(resume="latest")
        assert shown(tmp_path) == FIRST + LAST


@pytest.mark.turns(2)
@pytest.mark.parametrize("checkpoints", ["checkpoints", None])
def test_a_job_that_finished_without_rows_resumes(tmp_path: Path, checkpoints: str | None) -> None:
    """Its ledger stays, although no rows are visible, because a savepoint names the run."""
    running = job(tmp_path, rate=4000, checkpoints=checkpoints, passes=False).execute_async()
    savepoint = running.savepoint(tmp_path / "savepoints")
    running.stop(drain=True)
    for _ in range(2):
        job(tmp_path, checkpoints=checkpoints, passes=False).execute(resume=savepoint)
    assert shown(tmp_path) == []


def test_a_savepoint_of_a_run_that_no_checkpoint_names_is_not_repeated(tmp_path: Path) -> None:
    """Later runs of the job, which start afresh, keep the ledger of visible rows."""
    running = job(tmp_path, "append", rate=4000).execute_async()
    savepoint = running.savepoint(tmp_path / "savepoints")
    before = len(shown(tmp_path))
    eventually(lambda: len(shown(tmp_path)) > before)
    running.stop()
    for _ in range(6):
        job(tmp_path, "append", rows=len(OTHERS)).execute()
    with pytest.raises(hg.CheckpointError, match="would be written twice"):
        job(tmp_path, "append").execute(resume=savepoint)
