"""At an aligned barrier both ends of each channel of a real job have counted the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import headgate as hg
from headgate.state.checkpoint_files import read_state
from headgate.state.checkpoint_metadata import CheckpointMetadata, StateFile
from headgate.state.checkpoint_storage import load_checkpoint
from headgate.state.snapshot import decode
from tests.runtime.counted_channels import CONSUMERS, PRODUCERS, SOURCE, TAKEN, Channel, options, send_in_turns, sent
from tests.runtime.jobs import environment, eventually

#: The counters of a task when the barrier passed, by operator: the rows of a source; rows in, rows out and late rows of
#: another operator.
Counted = Mapping[str, Sequence[int]]


@pytest.mark.parametrize("flow_control", ["credit", "tcp"])
def test_senders_and_receivers_have_counted_the_same(tmp_path: Path, processes: bool, flow_control: str) -> None:
    """The numbers 0, 1, 2 ... go to the receivers in turns, so what a sender has read says what each channel got."""
    more = {"checkpoint_dir": str(tmp_path), "checkpoint_interval": 0.1, "flow_control": flow_control}
    env = environment(processes, **options(**more))
    send_in_turns(env, hg.sinks.null)
    job = env.execute_async()
    seen: set[Path] = set()
    received: dict[Channel, int] = {}
    try:
        while len(seen) < 3:
            seen.add(eventually(lambda: next((each for each in found(tmp_path) if each not in seen), None)))
            received = checked(max(seen, key=lambda path: int(path.name.removeprefix("chk-"))))
    finally:
        job.cancel()
    assert all(received.values()), received


def found(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("*/chk-*/_metadata")]


def checked(checkpoint: Path) -> dict[Channel, int]:
    """Return the rows of each channel, after a check that both of its ends have counted them."""
    metadata = load_checkpoint(checkpoint)
    senders, receivers = counters(metadata, SOURCE), counters(metadata, TAKEN[0])
    received = {
        (producer, consumer): receivers[consumer][name][1]
        for producer, name in enumerate(TAKEN)
        for consumer in range(CONSUMERS)
    }
    assert received == sent({producer: senders[producer][SOURCE][0] for producer in range(PRODUCERS)})
    return received


def counters(metadata: CheckpointMetadata, operator: str) -> list[Counted]:
    """Return the counters of each subtask of the vertex that has an operator."""
    [vertex] = [each for each in metadata.vertices if each.has_any({operator})]
    states = [task for task in vertex.tasks if isinstance(task, StateFile)]
    return [decode(read_state(state))["#counters"].values for state in states]
