"""Random pipelines that branch, over two processes, with random stalls: every row arrives at each sink as often as it
should (of a broadcast once everywhere), and each key's rows in order.

The seed is in the test's name, or printed by the long run, so what is found can be run again.
"""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.runtime.task.barriers import TaskBarriers
from tests.memory.edits import replaced
from tests.memory.places import assignment
from tests.memory.planting import PlantedBug
from tests.runtime.random_pipelines import RandomPipeline

LONG_RUN = 600.0


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_doubled_or_reordered(seed: int, tmp_path: Path) -> None:
    stress(seed, 5_000, tmp_path)


@pytest.mark.turns(3)
@pytest.mark.parametrize("alignment", ["aligned", "unaligned", "unaligned in time"])
def test_barriers_of_every_kind_branch(alignment: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    stress_with(1, 2_000, tmp_path, config(chance, tmp_path, alignment), parallelism=2)


@pytest.mark.soak
def test_ten_minutes_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    began = time.monotonic()
    for seed in itertools.count(1_000):
        with capsys.disabled():
            print(f"stress: seed {seed}, {time.monotonic() - began:.0f} s")
        stress(seed, 300_000, tmp_path / str(seed))
        if time.monotonic() - began > LONG_RUN:
            return


BUG = PlantedBug(
    "an output that the barrier has left is recorded without its channels",
    TaskBarriers._turn_output_urgent,
    replaced(assignment(3, of=5).value.element(1), "THIS if any(each is not None for each in channels) else []"),
)
BUGS = [BUG]
#: The planted bug has to be found in so many pipelines.
TRIES = 20


def test_a_planted_bug_is_caught(tmp_path: Path) -> None:
    with BUG.planted(), pytest.raises(hg.HeadgateError, match="zip"):
        hunt(tmp_path)


def hunt(folder: Path) -> None:
    """In threads, for that is where a bug is planted."""
    for seed in range(TRIES):
        place, chance = folder / str(seed), random.Random(seed)
        options = config(chance, place, "unaligned in time")
        stress_with(seed, 20_000, place, options, parallelism=2, processes=False)


def stress(seed: int, rows: int, folder: Path) -> None:
    """One job; what it is is drawn, and how it runs."""
    chance = random.Random(seed)
    parallelism = chance.choice([2, 3, 4])
    stress_with(seed, rows, folder, config(chance, folder), parallelism=parallelism)


def stress_with(
    seed: int, rows: int, folder: Path, config: hg.Config, *, parallelism: int, processes: bool = True
) -> None:
    deployment = hg.LocalDeployment(taskmanagers=2, processes=processes)
    env = hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)
    pipeline = RandomPipeline(seed, rows, parallelism)
    pipeline.build(env, folder)
    env.execute()
    pipeline.check(folder)
    pipeline.check_order(folder)


def config(chance: random.Random, folder: Path, alignment: str | None = None) -> hg.Config:
    """With checkpoints of that alignment, or with what is drawn."""
    flow_control = "credit" if alignment is not None else chance.choice(["credit", "credit", "tcp"])
    has_credit = flow_control == "credit"
    segment_size = chance.choice([512, 4 << 10, 32 << 10])
    drawn = chance.choice(["streaming", "streaming", "checkpoints", "checkpoints", "batch"])
    mode = drawn if alignment is None else "checkpoints"
    if alignment is None:
        alignment = chance.choice(["aligned", "unaligned", "unaligned in time"]) if has_credit else "aligned"
    return hg.Config(
        flow_control=flow_control,
        segment_size=segment_size,
        network_memory=8000 * segment_size,
        message_size=chance.choice([1000, 16 << 10, 128 << 10]),
        buffers_per_channel=chance.choice([0, 1, 2]) if has_credit else 2,
        floating_buffers_per_gate=chance.choice([1, 8]),
        max_buffers_per_channel=chance.choice([2, 10]),
        connections_per_pair=chance.choice([1, 1, 2]),
        buffer_timeout=chance.choice([-1, 0, 0.001, 0.1, "adaptive"]),
        latency_interval=chance.choice([0, 0.05]),
        debloat=has_credit and mode != "batch" and chance.random() < 0.3,
        execution_mode="batch" if mode == "batch" else "streaming",
        paranoid=True,
        **(checkpoints(folder, alignment) if mode == "checkpoints" else {}),
    )


def checkpoints(folder: Path, alignment: str) -> dict[str, Any]:
    """Barriers of that kind, some twenty a second; a job that fails stays so."""
    return {
        "checkpoint_dir": str(folder),
        "checkpoint_interval": 0.05,
        "unaligned": alignment != "aligned",
        "aligned_timeout": 0.01 if alignment == "unaligned in time" else 0,
        "restart": hg.restart.none(),
    }
