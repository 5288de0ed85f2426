"""Faults at times that come from a seed: what is committed is always as if nothing had happened.

A failure says its seed. SEED=1234 in the environment has the soak begin with that one, COUNT=100 ends it after so many.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.runtime.checkpointing import resume
from tests.memory.edits import never
from tests.memory.places import condition
from tests.memory.planting import PlantedBug
from tests.runtime.driver_program import Programs
from tests.runtime.schedules import FAULTS, Schedule

COUNT = 1000
#: A planted bug has to be found in so many schedules that may show it.
TRIES = 10
BUG = PlantedBug(
    "a damaged checkpoint is skipped though sinks have committed with it",
    resume.newest,
    never(condition(1, of=2)),
)


@pytest.fixture
def programs() -> Iterator[Programs]:
    programs = Programs()
    yield programs
    programs.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_schedule(programs: Programs, tmp_path: Path, seed: int) -> None:
    Schedule(programs, tmp_path / "job", seed).run()


def test_a_planted_bug_is_caught(programs: Programs, tmp_path: Path) -> None:
    """The bug of `test_stress.py`: a task fails if a barrier has left one of its two outputs when it overtakes."""
    with pytest.raises(AssertionError, match="zip"):
        hunt(programs, tmp_path, "tests.runtime.test_stress", lambda schedule: schedule.becomes_unaligned)


@pytest.mark.soak
def test_a_planted_bug_of_a_resume_is_caught(programs: Programs, tmp_path: Path) -> None:
    """The bug of this module."""
    with pytest.raises(
        AssertionError, match=r"a program resumed from an older checkpoint|and the job would resume from"
    ):
        hunt(programs, tmp_path, __name__, lambda schedule: schedule.has_fault("a state file is torn before a resume"))


def hunt(programs: Programs, folder: Path, bug: str, may_show: Callable[[Schedule], bool]) -> None:
    drawn = (Schedule(programs, folder / str(seed), seed, bug=bug) for seed in itertools.count())
    for schedule in itertools.islice(filter(may_show, drawn), TRIES):
        schedule.run()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_schedules(programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, count = int(os.environ.get("SEED", "1000")), int(os.environ.get("COUNT", COUNT))
    struck: Counter[str] = Counter()
    early: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    for seed in range(first, first + count):
        schedule = Schedule(programs, tmp_path / str(seed), seed)
        try:
            schedule.run()
        except BaseException as error:
            error.add_note(
                f"seed {seed}, after {seed - first} schedules, {schedule.struck}; SEED={seed} begins with it"
            )
            raise
        struck.update(schedule.struck)
        early.update(schedule.early)
        refused.update(schedule.refused)
        ended.update({(kind, schedule.error or "FINISHED") for kind in schedule.struck})
        shutil.rmtree(schedule.folder)
        with capsys.disabled():
            if (seed - first + 1) % 50 == 0 or seed == first + count - 1:
                print(f"\nseeds {first} to {seed}, {seed - first + 1} schedules", flush=True)
                print(table(struck, early, refused, ended), flush=True)
    assert not [kind for kind in FAULTS if not struck[kind]] or count < COUNT, "a kind of fault never struck"


def table(struck: Counter[str], early: Counter[str], refused: Counter[str], ended: Counter[tuple[str, str]]) -> str:
    """By kind of fault: how often it struck, how often before the first checkpoint, how often a program refused to go
    on, and how the jobs ended."""
    lines = [f"{'fault':54} struck  early  refused  jobs ended"]
    for kind in FAULTS:
        ends = ", ".join(f"{count} {end}" for (of, end), count in sorted(ended.items()) if of == kind)
        lines.append(f"{kind:54} {struck[kind]:6} {early[kind]:6} {refused[kind]:8}  {ends}")
    return "\n".join(lines)
