"""Checkpoints and savepoints that an earlier version wrote resume, and every row is there once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import headgate as hg
from headgate.state.snapshot import decode, encode
from tests.fixtures.checkpoints_v1 import (
    CASES,
    HERE,
    IN_FLIGHT,
    JOB,
    environment,
    files_of,
    hide_pending,
    place,
    put_file,
    sealed,
)
from tests.runtime.jobs import eventually

PATIENCE = 60.0
#: `make test` resumes each case with one parallelism, each time another one. `make soak` resumes it with all.
TABLE = [
    pytest.param(name, each, marks=[] if at == number % len(case.parallelism) else [pytest.mark.soak])
    for number, (name, case) in enumerate(CASES.items())
    for at, each in enumerate(case.parallelism)
]


def resume(name: str, folder: Path, parallelism: int, checkpoint: Path | str) -> hg.JobResult:
    """To the end of what there is."""
    case = CASES[name]
    (folder / "open").touch()
    env = environment(folder, case, parallelism)
    case.build(env, folder)
    job = env.execute_async(JOB, str(checkpoint))
    if not case.bounded:
        put_file(folder, 6)
        try:
            eventually(lambda: case.seen(folder) == case.rows(), PATIENCE)
        finally:
            job.cancel()
        return job._result()
    return job.wait(PATIENCE)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("name", "parallelism"), TABLE)
def test_it_resumes(name: str, parallelism: int, tmp_path: Path) -> None:
    case = CASES[name]
    checkpoint = place(name, tmp_path)
    before = {sink: len(rows) for sink, rows in case.seen(tmp_path).items()}
    result = resume(name, tmp_path, parallelism, checkpoint)
    assert case.seen(tmp_path) == case.rows()
    assert 0 < sum(before.values()) < sum(map(len, case.rows().values())), "it resumes in the midst of its rows"
    assert result.restarts == 0


def test_sums_of_decimals_are_exact_from_then_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files of before keep their float64 columns, new ones have decimals, and the log says so of each sink."""
    checkpoint = place("decimal-windows", tmp_path)
    types = {file: pq.read_schema(file).types[-2:] for file in files_of(tmp_path, "tumbled")}
    resume("decimal-windows", tmp_path, 2, checkpoint)
    decimals = [pa.decimal128(30, 2), pa.decimal128(24, 6)]
    found = {file: pq.read_schema(file).types[-2:] for file in files_of(tmp_path, "tumbled")}
    assert all(each == [pa.float64()] * 2 for each in types.values())
    assert all(each == types.get(file, decimals) for file, each in found.items())
    assert len(found) > len(types) > 0
    said = [record.getMessage() for record in caplog.records if "keep their types" in record.getMessage()]
    assert len(said) == 3
    wrote = "sink 'parquet' wrote (key: int64, window_start: timestamp[us, tz=UTC], window_end: timestamp[us, tz=UTC], "
    assert wrote + "total: double, average: double) and now writes (" in said[0]
    assert all(str(checkpoint) in each for each in said)


@pytest.mark.parametrize("name", ["sources", "windows-savepoint", "branches"])
def test_it_is_the_latest(name: str, tmp_path: Path) -> None:
    """Found in the job's folder, which also names its savepoint."""
    place(name, tmp_path)
    resume(name, tmp_path, 2, "latest")
    assert CASES[name].seen(tmp_path) == CASES[name].rows()


@pytest.mark.parametrize("name", ["sources", "windows", "process", "branches"])
def test_its_files_were_not_committed(name: str, tmp_path: Path) -> None:
    """The program was lost when the checkpoint was complete."""
    checkpoint = place(name, tmp_path)
    assert hide_pending(checkpoint)
    resume(name, tmp_path, 2, checkpoint)
    assert CASES[name].seen(tmp_path) == CASES[name].rows()


def test_all_stored_checkpoints_are_there_and_small() -> None:
    assert {path.name for path in HERE.iterdir()} == set(CASES)
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file()) < 1 << 20
    assert all(any((HERE / name).glob("checkpoints/*/*/*.in-flight")) for name in IN_FLIGHT)


def test_a_sum_that_is_no_decimal_is_named(tmp_path: Path) -> None:
    """With operator, subtask, file and column."""
    checkpoint = place("decimal-windows", tmp_path)
    spoilt = set_sums(checkpoint, 1e300)
    with pytest.raises(hg.CheckpointError) as raised:
        resume("decimal-windows", tmp_path, 2, checkpoint)
    assert raised.value.operator == "window"
    assert raised.value.subtask in (0, 1)
    files, said = raised.value.message.split(": an earlier version stored the sum of ")
    assert {Path(file) for file in files.split(" or ")} <= spoilt
    assert said.startswith("column 'price' as a float64. It is 1e+300 here, which does not fit into decimal128(30, 2);")


def set_sums(checkpoint: Path, total: float) -> set[Path]:
    """Give the tumbling windows other sums; returns their files."""
    body = json.loads((checkpoint / "_metadata").read_text())["checkpoint"]
    [vertex] = [vertex for vertex in body["vertices"] if vertex["name"] == "window -> parquet"]
    for task in vertex["tasks"]:
        path = checkpoint / task["file"]
        snapshots = decode(path.read_bytes())
        for key, snapshot in snapshots.items():
            snapshots[key] = snapshot.with_tables(partial(with_sums, total=total))
        content = encode(snapshots)
        path.write_bytes(content)
        task.update(size=len(content), checksum=xxhash.xxh3_64_hexdigest(content))
    (checkpoint / "_metadata").write_text(sealed(body))
    return {checkpoint / task["file"] for task in vertex["tasks"]}


def with_sums(table: pa.Table, total: float) -> pa.Table:
    at = table.column_names.index("total=sum('price')[0]")
    return table.set_column(at, table.field(at), pa.array([total] * table.num_rows))
