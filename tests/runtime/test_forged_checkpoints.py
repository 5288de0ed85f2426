"""Checkpoints changed by somebody who knows the checksums: resumed, or refused in one clear error; never a crash.

A failure says its seed. SEED=1234 in the environment has the soak begin with that one, COUNT=100 ends it after so many.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.state.checkpoint_storage import load_checkpoint, verify_checkpoint
from headgate.state.snapshot import KEY_GROUP, Snapshot, decode, encode
from tests.exactly_once import slow
from tests.runtime import forged_job
from tests.runtime.forging import flying_file, flying_of, forged, messages_in, reseal, state_file, state_of
from tests.runtime.jobs import eventually

#: How long a resumed job may take, seconds.
PATIENCE = 120.0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with state of all kinds, and data in flight. There are about three such checkpoints, one with each
    slow batch. Then nothing is in flight any more."""
    folder = tmp_path_factory.mktemp("job")
    job = forged_job.build(folder, 2, slow=slow(0.5, until=folder / "open")).execute_async("job")
    seen: set[Path] = set()

    def with_everything() -> Path | None:
        for metadata in {*(folder / "checkpoints").glob("*/chk-*/_metadata")} - seen:
            seen.add(metadata)
            shutil.rmtree(folder / "kept", ignore_errors=True)
            with suppress(hg.CheckpointError, OSError):  # it may be an old one, which is removed now
                kept = Path(shutil.copytree(metadata.parent, folder / "kept" / metadata.parent.name))
                verify_checkpoint(load_checkpoint(kept))
                if has_everything(kept):
                    return kept
        return None

    try:
        return eventually(with_everything, PATIENCE)  # type: ignore[no-any-return]
    finally:  # a job that goes on would disturb all later tests
        job.cancel()
        (folder / "open").touch()


def has_everything(checkpoint: Path) -> bool:
    """Whether no table of state is empty in all subtasks, and messages are in flight."""
    rows: Counter[tuple[str, str]] = Counter()
    for file in checkpoint.glob("*.state"):
        for node, snapshot in decode(file.read_bytes()).items():
            rows.update({(node, name): table.num_rows for name, table in snapshot.tables.items()})
    never = {("process#5", "processing timers")}
    flying = [messages_in(flying_of(file.read_bytes())[1]) for file in checkpoint.glob("*.in-flight")]
    return rows.keys() > never and all(rows[key] for key in rows.keys() - never) and any(flying)


class Resumer:
    """A process that resumes checkpoints, one after the other."""

    def __init__(self, folder: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.runtime.forged_job", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def __call__(self, checkpoint: Path, parallelism: int) -> str:
        """Resume from a checkpoint and return the outcome."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(checkpoint), parallelism]).encode() + b"\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        answer = self._process.stdout.readline() if readable else b'"hangs"'
        return str(json.loads(answer)) if answer else f"ended with {self._process.wait(PATIENCE)}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def resume(original: Path) -> Iterator[Resumer]:
    process = Resumer(original.parents[1])
    yield process
    process.close()


def try_all(original: Path, resume: Resumer, folder: Path, seeds: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        target = forged(original, folder / f"forged-{seed}", seed)
        said = resume(target, 2 + seed % 2)
        assert said.startswith(("done", "refused")), f"seed {seed}: {said}"
        word = said.partition(":")[0]
        counts[word] = counts.get(word, 0) + 1
        shutil.rmtree(target)
    return counts


def test_as_it_was_it_is_resumed(original: Path, resume: Resumer) -> None:
    assert resume(original, 2) == "done"
    assert resume(original, 3) == "done"


def change_index(checkpoint: Path, change: Callable[[Any], Any]) -> None:
    """Of every state file."""
    for file in checkpoint.glob("*.state"):
        index, streams = state_of(file.read_bytes())
        file.write_bytes(state_file(change(index), streams))
    reseal(checkpoint)


def test_poisoned_offsets_in_a_table() -> None:
    """They ended the process by a signal when rows were filtered, which is so at another parallelism."""
    table = pa.table({KEY_GROUP: pa.array([1, 2, 3], pa.int32()), "key": ["a", "bb", "ccc"]})
    index, streams = state_of(encode({"x": Snapshot({"t": table})}))
    assert decode(state_file(index, streams))["x"].tables["t"] == table
    with pytest.raises(hg.CheckpointError, match="the state cannot be read: ArrowInvalid"):
        decode(state_file(index, poisoned(streams)))


def poisoned(stream: bytes) -> bytes:
    """The last offset of each string column is far behind its end."""
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    changed = bytearray(stream)
    for column in table.itercolumns():
        for chunk in column.chunks:
            if pa.types.is_string(chunk.type) and len(chunk):
                at = stream.index(chunk.buffers()[1].to_pybytes()[: 4 * len(chunk) + 4])
                changed[at + 4 * len(chunk) : at + 4 * len(chunk) + 4] = b"\xff\xff\xff\x7f"
    return bytes(changed)


@pytest.mark.timeout(120)
def test_deep_nesting(original: Path, resume: Resumer, tmp_path: Path) -> None:
    """It was a RecursionError."""
    deep = b'{"a": {"values": {"x": ' + b"[" * 200_000 + b"]" * 200_000 + b'}, "tables": {}}}'
    state = Path(shutil.copytree(original, tmp_path / "state"))
    change_index(state, lambda index: deep)
    assert ".state: the state cannot be read: RecursionError" in resume(state, 2)
    flying = Path(shutil.copytree(original, tmp_path / "flying"))
    for file in flying.glob("*.in-flight"):
        file.write_bytes(struct.pack("<4sIQ", b"HGIF", 1, 400_000) + b"[" * 200_000 + b"]" * 200_000)
    reseal(flying)
    assert ".in-flight: in-flight data cannot be read: RecursionError" in resume(flying, 2)


@pytest.mark.timeout(120)
def test_another_file_than_those_that_are_watched(tmp_path: Path) -> None:
    """Its rows appeared in the output. The job is not started again and again, whatever the strategy."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("a row\n")
    (tmp_path / "secret.txt").write_text("secret\n")

    def build() -> tuple[hg.StreamEnvironment, list[str]]:
        found: list[str] = []
        config = hg.Config(checkpoint_dir=tmp_path / "own", checkpoint_interval="1 h", restart=hg.restart.exponential())
        env = hg.StreamEnvironment(config=config, deployment=hg.LocalDeployment(1, processes=False))
        rows = env.from_source(hg.sources.files(folder, watch=True, interval="10 ms"))
        rows.sink_to(hg.sinks.for_each_batch(lambda batch, checkpoint: found.extend(batch["value"].to_pylist())))
        return env, found

    env, found = build()
    job = env.execute_async("watch")
    eventually(lambda: job.metrics()["rows_in"])
    savepoint = Path(job.stop(savepoint=tmp_path / "savepoints"))  # type: ignore[arg-type]
    change_index(savepoint, lambda index: {
        key: {**snapshot, "values": {**snapshot["values"], "position": POSITION}}
        if "position" in snapshot["values"] else snapshot
        for key, snapshot in index.items()
    })  # fmt: skip
    env, found = build()
    with pytest.raises(
        hg.CheckpointError, match=r"\.state: is no state that this job can resume from: .*secret"
    ) as caught:
        env.execute("watch", resume=str(savepoint))
    assert str(savepoint) in caught.value.message
    assert found == []


#: Of a watched folder: it has begun to read a file beside it.
POSITION = {"read": [], "begun": [["../secret.txt", 7, [0, 0, 0]]]}


def with_groups(table: pa.Table, change: Callable[[int], int]) -> pa.Table:
    groups = pa.array([change(group) for group in table.column(KEY_GROUP).to_pylist()], pa.int32())
    return table.set_column(0, KEY_GROUP, groups)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("change", "says"),
    [(lambda group: 15 - group, "a row of state names key group"), (lambda group: group + 16, "the last group is 15")],
    ids=["another's", "nobody's"],
)
def test_keys_in_other_key_groups(
    original: Path, resume: Resumer, tmp_path: Path, change: Callable[[int], int], says: str
) -> None:
    """One subtask resumed from the state of a key, and another got its rows: the key had two sums."""
    target = Path(shutil.copytree(original, tmp_path / "forged"))
    for file in target.glob("*.state"):
        snapshots = {
            node: snapshot.with_tables(lambda table: with_groups(table, change))
            for node, snapshot in decode(file.read_bytes()).items()
        }
        file.write_bytes(encode(snapshots))
    reseal(target)
    for parallelism in (2, 3):
        said = resume(target, parallelism)
        assert re.match(rf"refused: UnusableState: .*/forged/.*\.state: .*{says}", said), said


@pytest.mark.timeout(120)
def test_keys_in_flight_to_another_subtask(original: Path, resume: Resumer, tmp_path: Path) -> None:
    target = Path(shutil.copytree(original, tmp_path / "forged"))
    swapped = 0
    for file in target.glob("*.in-flight"):
        index, data = flying_of(file.read_bytes())
        swapped += len(index)
        file.write_bytes(flying_file([{**part, "consumer": 1 - part["consumer"]} for part in index], data))
    reseal(target)
    assert swapped
    said = resume(target, 2)
    assert re.match(r"refused: UnusableState: .*/forged/.*\.in-flight.* have keys of other subtasks", said), said


def test_forged_by_chance(original: Path, resume: Resumer, tmp_path: Path) -> None:
    counts = try_all(original, resume, tmp_path, range(16))
    assert counts["refused"] > 8
    assert counts["done"] > 0


@pytest.mark.soak
@pytest.mark.timeout(1700)
def test_forged_by_chance_for_long(original: Path, resume: Resumer, tmp_path: Path) -> None:
    first, count = int(os.environ.get("SEED", "1000")), int(os.environ.get("COUNT", "2000"))
    print(try_all(original, resume, tmp_path, range(first, first + count)))
