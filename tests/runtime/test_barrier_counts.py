"""At an aligned barrier both ends of each channel of a real job have counted the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.state.checkpoint_files import read_state
from headgate.state.checkpoint_metadata import CheckpointMetadata, StateFile
from headgate.state.checkpoint_storage import load_checkpoint
from headgate.state.snapshot import decode
from tests.runtime.jobs import NUMBERS, endless, environment, eventually

#: The channels of the one sender, one to each receiver.
CHANNELS = 3


def counters(metadata: CheckpointMetadata) -> Iterator[tuple[int, list[int]]]:
    """Yield, for each task, the parallelism of its vertex, and the rows that its first operator had counted when the
    barrier passed."""
    for vertex in metadata.vertices:
        for task in vertex.tasks:
            assert isinstance(task, StateFile)
            (first, *_) = decode(read_state(task))["#counters"].values.values()
            yield len(vertex.tasks), first


@pytest.mark.parametrize("flow_control", ["credit", "tcp"])
def test_sender_and_receivers_have_counted_the_same(tmp_path: Path, processes: bool, flow_control: str) -> None:
    """The numbers 0, 1, 2 ... go to the receivers in turns, so what the sender read says what each channel got."""
    env = environment(
        processes,
        parallelism=CHANNELS,
        segment_size=4096,
        checkpoint_dir=str(tmp_path),
        checkpoint_interval=0.1,
        flow_control=flow_control,
    )
    numbers = endless(env).set_parallelism(1)
    turns = numbers.partition_by(lambda batch, _: np.mod(batch["n"].to_numpy(), CHANNELS))
    turns.map_batches(keep, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    seen: set[Path] = set()
    try:
        while len(seen) < 3:
            seen.add(eventually(lambda: next((each for each in found(tmp_path) if each not in seen), None)))
            check(max(seen, key=lambda path: int(path.name.removeprefix("chk-"))))
    finally:
        job.cancel()


def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def found(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("*/chk-*/_metadata")]


def check(checkpoint: Path) -> None:
    counted = list(counters(load_checkpoint(checkpoint)))
    [(sent, *_)] = [counts for parallelism, counts in counted if parallelism == 1]
    received = [counts[0] for parallelism, counts in counted if parallelism == CHANNELS]
    assert received == [len(range(channel, sent, CHANNELS)) for channel in range(CHANNELS)]
    assert sent > 0
