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
from tests.runtime.forging import forged, reseal, state_file, state_of
from tests.runtime.jobs import eventually

#: How long a resumed job may take, seconds.
PATIENCE = 120.0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with state of all kinds, and data in flight."""
    folder = tmp_path_factory.mktemp("job")
    job = forged_job.build(folder, 2, slow=slow(0.05, until=folder / "open")).execute_async("job")

    def with_everything() -> Path | None:
        found = (folder / "checkpoints").glob("*/chk-*/_metadata")
        for metadata in sorted(found, key=lambda path: int(re.findall("[0-9]+", path.parent.name)[0]), reverse=True):
            with suppress(hg.CheckpointError, FileNotFoundError):  # it may be an old one, which is removed now
                there = load_checkpoint(metadata.parent)
                if there.in_flight_bytes:
                    shutil.rmtree(folder / "kept", ignore_errors=True)
                    kept = Path(shutil.copytree(metadata.parent, folder / "kept" / "chk-1"))
                    verify_checkpoint(load_checkpoint(kept))
                    return kept
        return None

    eventually(lambda: job.metrics()["rows_in"] > 500, 60)
    kept: Path = eventually(with_everything, 60)
    job.cancel()
    (folder / "open").touch()
    return kept


class Resumer:
    """A process that resumes checkpoints, one after the other."""

    def __init__(self, folder: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.runtime.forged_job", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def __call__(self, checkpoint: Path, parallelism: int) -> str:
        """What came of it."""
        assert self._process.stdin is not None and self._process.stdout is not None
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


@pytest.mark.timeout(60)
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


@pytest.mark.timeout(60)
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
        hg.CheckpointError, match=r"\.state: is no state that this job can go on from: .*secret"
    ) as caught:
        env.execute("watch", resume=str(savepoint))
    assert str(savepoint) in caught.value.message and found == []


#: Of a watched folder: it has begun to read a file beside it.
POSITION = {"read": [], "begun": [["../secret.txt", 7, [0, 0, 0]]]}


def test_forged_by_chance(original: Path, resume: Resumer, tmp_path: Path) -> None:
    counts = try_all(original, resume, tmp_path, range(40))
    assert counts["refused"] > 20 and counts["done"] > 0


@pytest.mark.soak
@pytest.mark.timeout(1700)
def test_forged_by_chance_for_long(original: Path, resume: Resumer, tmp_path: Path) -> None:
    first, count = int(os.environ.get("SEED", "1000")), int(os.environ.get("COUNT", "2000"))
    print(try_all(original, resume, tmp_path, range(first, first + count)))
