"""Faults at times that come from a seed: what is committed is always as if nothing had happened.

A failure says its seed. SEED=1234 in the environment has the soak begin with that one, COUNT=100 ends it after so many.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.driver_program import Programs
from tests.runtime.schedules import FAULTS, Schedule

COUNT = 1000
#: A planted bug has to be found in so many schedules that may show it.
TRIES = 10


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
        hunt(programs, tmp_path)


def hunt(programs: Programs, folder: Path) -> None:
    drawn = (Schedule(programs, folder / str(seed), seed, has_bug=True) for seed in itertools.count())
    for schedule in itertools.islice((each for each in drawn if each.becomes_unaligned), TRIES):
        schedule.run()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_schedules(programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, count = int(os.environ.get("SEED", "1000")), int(os.environ.get("COUNT", COUNT))
    struck: Counter[str] = Counter()
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
        ended.update({(kind, schedule.error or "FINISHED") for kind in schedule.struck})
        shutil.rmtree(schedule.folder)
        with capsys.disabled():
            if (seed - first + 1) % 50 == 0 or seed == first + count - 1:
                print(f"\nseeds {first} to {seed}, {seed - first + 1} schedules", flush=True)
                print(table(struck, ended), flush=True)
    assert not [kind for kind in FAULTS if not struck[kind]] or count < COUNT, "a kind of fault never struck"


def table(struck: Counter[str], ended: Counter[tuple[str, str]]) -> str:
    """By kind of fault: how often it struck, and how the jobs ended that it struck."""
    lines = [f"{'fault':54} struck  jobs ended"]
    for kind in FAULTS:
        ends = ", ".join(f"{count} {end}" for (of, end), count in sorted(ended.items()) if of == kind)
        lines.append(f"{kind:54} {struck[kind]:6}  {ends}")
    return "\n".join(lines)
