"""TaskManagers killed at times that come from a seed: what is committed is always as if nothing had happened.

A failure says its seed; SEED=1234 in the environment has the soak begin with that one.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from tests.exactly_once import build, committed, environment, expected, fails_once, none_lost, rows, slow
from tests.runtime.jobs import eventually

#: How barriers go, and over which flow controls.
MODES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["credit", "tcp"]),
    ({"unaligned": True}, ["credit"]),
    ({"unaligned": True, "aligned_timeout": "10 ms"}, ["credit"]),
    ({"checkpoint_mode": "at-least-once"}, ["credit", "tcp"]),
]


def one_round(folder: Path, seed: int) -> int:
    """Returns how often the job started again."""
    chance = random.Random(seed)
    parallelism, taskmanagers = chance.randint(1, 3), chance.randint(1, 3)
    mode, flow_controls = chance.choice(MODES)
    is_pressed = chance.random() < 0.5
    env = environment(
        folder,
        hg.LocalDeployment(taskmanagers, processes=True),
        parallelism,
        flow_control=chance.choice(flow_controls),
        segment_size=chance.choice([512, 32 << 10]),
        restart=hg.restart.exponential(initial="10 ms", max="100 ms"),
        tolerable_failed_checkpoints=100,
        **mode,
    )
    folder.mkdir()
    function = fails_once(folder) if chance.random() < 0.3 else None
    pressed = {"source": rows(rate=None), "middle": slow(0.03)} if is_pressed else {}
    job = build(env, folder, function, **pressed).execute_async()
    if chance.random() < 0.9:
        eventually(lambda: job.status() == "RUNNING", 60)
    for _ in range(chance.randint(1, 4)):
        time.sleep(chance.uniform(0.0, 1.2))  # not for something to have come: this is when it strikes
        victim = chance.choice(job._master._attempt.members).pid
        if victim is not None and job.status() in ("CREATED", "RUNNING"):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
    try:
        result = job.wait(120)
    except hg.TaskManagerLost:
        assert job.restarts == 0 and job._master._started_at is None, "it had run, and did not start again"
        return 0
    exactly_once = "checkpoint_mode" not in mode
    assert committed(folder) == expected() if exactly_once else none_lost(folder), f"seed {seed}"
    assert not list((folder / "out").glob("_*"))
    return result.restarts


def test_a_round(tmp_path: Path) -> None:
    one_round(tmp_path / "round", seed=1)


@pytest.mark.soak
def test_ten_minutes(tmp_path: Path) -> None:
    began, rounds, restarts, first = time.monotonic(), 0, 0, int(os.environ.get("SEED", "1000"))
    while time.monotonic() - began < 600:
        seed = first + rounds
        try:
            restarts += one_round(tmp_path / str(rounds), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}, after {rounds} jobs; SEED={seed} begins with it")
            raise
        rounds += 1
    print(f"seeds {first} to {first + rounds - 1}: {rounds} jobs, {restarts} restarts")
    assert restarts > rounds // 2, "of the kills too few struck: on a quick machine jobs are over sooner"
