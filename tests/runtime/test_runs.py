"""The run in `BatchInfo`: it identifies the program that calls a function."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import headgate as hg
from headgate.state.checkpoint_storage import load_checkpoint
from tests.exactly_once import environment, fails_once, rows


def runs_told(folder: Path, resume: str | None = None) -> set[tuple[str, bool]]:
    """Return the runs that a program's batches come with, each with whether the program had failed once by then."""
    told, flag = set[tuple[str, bool]](), folder / "failed"

    def note(_batch: pa.RecordBatch, info: hg.BatchInfo) -> None:
        told.add((info.run, flag.exists()))

    env = environment(folder, hg.LocalDeployment(2, processes=False))
    stream = env.from_source(rows())
    failing = stream.map_batches(fails_once(folder), schema=stream.schema)
    failing.sink_to(hg.sinks.for_each_batch(note))
    env.execute(resume=resume)
    return told


def test_a_program_has_one_run_whatever_fails(tmp_path: Path) -> None:
    told = runs_told(tmp_path)
    [run] = {run for run, _ in told}
    assert run
    assert {has_failed for _, has_failed in told} == {False, True}


def test_each_program_has_a_run_of_its_own_and_so_have_its_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    found = list[str]()
    for resume in (None, None):
        [(run, _)] = runs_told(tmp_path, resume)
        last = max((tmp_path / "checkpoints").glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
        assert load_checkpoint(last).run == run
        found.append(run)
    assert len(set(found)) == 2
