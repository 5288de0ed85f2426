"""Orders in which programs of one job move: drawn ones, and those in which a rule matters."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from headgate.connectors.file_sinks.file_sink import Mode
from headgate.errors import CheckpointError, ResultsGone
from headgate.runtime.checkpointing.resume import LATEST_IF_ANY
from tests.runtime.owner_driver import ROWS, Driver, Event
from tests.runtime.owner_machine import OwnerMachine

#: How likely each event is at one checkpoint of a program.
CHANCES: dict[Event, float] = {
    "is idle": 0.3, "is saved": 0.3, "fails": 0.4, "is cancelled": 0.1, "is cancelled late": 0.1,
}  # fmt: skip


def run(folder: Path, seed: int) -> OwnerMachine:
    """Up to three programs and one that ends the job; what happens is drawn.

    Some programs start afresh, and some name a checkpoint or savepoint to resume from. That one may be from before the
    results were replaced: then the sink refuses it.
    """
    chance = random.Random(seed)
    events = {(event, driver, chance.randint(1, 5)) for event, likely in CHANCES.items() for driver in range(4)
              if chance.random() < likely}  # fmt: skip
    mode: Mode = chance.choice(get_args(Mode))
    with pytest.MonkeyPatch.context() as patch:
        calls, uploads = chance.random() < 0.3, seed % 4 == 3
        machine = OwnerMachine(folder, patch, events, keep=1 + seed % 3, mode=mode, calls=calls, uploads=uploads)
        try:
            for _ in range(chance.randint(1, 3)):
                machine.start(resume(machine, chance))
                for _ in range(chance.randint(1, 6)):
                    chance.choice(machine.drivers).step(chance.choice([1, 2, 5, 20, 60, 200]))
                if chance.random() < 0.3:
                    chance.choice(machine.drivers).lose()
                if chance.random() < 0.2 and (saved := machine.saved()):
                    machine.delete(chance.choice(saved))
            favourite = chance.random()
            machine.end(lambda drivers: drivers[-1] if chance.random() < favourite else chance.choice(drivers))
        finally:
            machine.close()
    return machine


def resume(machine: OwnerMachine, chance: random.Random) -> str | None:
    """What the next program resumes from."""
    if (drawn := chance.random()) < 0.2:
        return None
    # A program that replaces results, and was paused meanwhile, removes them also if an older checkpoint was named.
    may_replace = machine.mode == "overwrite" and any(
        driver.resumed is None and not driver.has_ended for driver in machine.drivers
    )
    there = [] if may_replace else machine.complete() + machine.saved()
    return chance.choice(there) if drawn < 0.5 and there else LATEST_IF_ANY


def hand_over(
    folder: Path,
    first_steps: int,
    second_steps: int,
    *,
    resume: str | None = LATEST_IF_ANY,
    mode: Mode = "append",
    calls: bool = False,
    uploads: bool = False,
) -> bool:
    """A program sleeps while its successor takes over, goes on to its end, and then the successor does. Whether the
    first one slept at all."""
    with pytest.MonkeyPatch.context() as patch:
        machine = OwnerMachine(folder, patch, mode=mode, calls=calls, uploads=uploads)
        try:
            first = machine.start()
            first.step(first_steps)
            slept = not first.has_ended
            second = machine.start(resume)
            second.step(second_steps)
            first.step(100_000)
            second.step(100_000)
            machine.check(machine.newest)
        finally:
            machine.close()
    return slept


def hand_overs(folder: Path, apart: int, *, uploads: bool = False) -> int:
    """A grid of them, each 3 steps of the first by `apart` of the second. Returns how many there were."""
    count, first_steps, slept = 0, 1, True
    while slept:
        for second_steps in range(5, 50, apart):
            place = folder / f"{first_steps}-{second_steps}"
            slept = hand_over(place, first_steps, second_steps, uploads=uploads)
            count += 1
        first_steps += 3
    return count


def hand_overs_afresh(folder: Path, mode: Mode, *, uploads: bool = False) -> None:
    """Another program starts afresh, while the first is about to make the rows of its first checkpoint visible."""
    folder = folder / f"{mode}-{uploads}"
    shows = _steps_alone(folder / "alone", lambda machine: bool(machine.rows()), uploads=uploads)
    for first_steps in range(shows - 6, shows):
        for second_steps in range(24, 56, 2):
            place = folder / f"{first_steps}-{second_steps}"
            hand_over(place, first_steps, second_steps, resume=None, mode=mode, uploads=uploads)


def lost_while_replacing(folder: Path) -> None:
    """The last checkpoint before has no rows of its own, so no sink misses them."""
    with pytest.MonkeyPatch.context() as patch:
        machine = OwnerMachine(folder, patch, {("is idle", 0, 2), ("is cancelled", 0, 3)}, mode="overwrite")
        machine.start().step(100_000)
        replacing = machine.start(None)
        while machine.rows():
            replacing.step()
        replacing.lose()
        last = machine.start()
        last.step(100_000)
        machine.check(last)


def named_while_replacing(folder: Path) -> int:
    """A program is lost at any moment while it replaces the results, and the next one names a checkpoint from before:
    it has all rows of this checkpoint, or is refused. Returns how many had them.

    The checkpoint has no rows of its own that the sink could miss.
    """
    at, exact, is_over = 0, 0, False
    while not is_over:
        with pytest.MonkeyPatch.context() as patch:
            events: set[tuple[Event, int, int]] = {("is idle", 0, 2), ("is cancelled", 0, 3)}
            machine = OwnerMachine(folder / f"named-{at}", patch, events, mode="overwrite")
            machine.start().step(100_000)
            named = machine.complete()[-1]
            replacing = machine.start(None)
            replacing.step(at)
            is_over = replacing.has_ended
            if not is_over:
                replacing.lose()
            last = machine.start(named)
            last.step(100_000)
            if last.error is None:
                assert machine.rows() == list(range(ROWS))
                exact += 1
            else:
                assert isinstance(last.error, CheckpointError | ResultsGone), repr(last.error)
        at += 1
    return exact


def looks_meanwhile(folder: Path) -> None:
    """What a program finds is an older checkpoint by the time it asks the sinks."""
    for steps in range(1, 25):
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(folder / f"looks-{steps}", patch)
            first = machine.start()
            while len(machine.complete()) < 2:
                first.step()
            second = machine.start()
            second.step(steps)
            first.step(35)
            second.step(100_000)
            first.step(100_000)
            machine.check(second)


def calls_meanwhile(folder: Path) -> None:
    """A program sleeps when its function has returned. Its successor calls it with the same rows, whose files the first
    one removes shortly before."""
    with pytest.MonkeyPatch.context() as patch:
        machine = OwnerMachine(folder / "calls", patch, calls=True)
        first_steps = _steps_to_call(machine, 3)
        second_steps = _steps_to_call(machine, 4)
        machine.close()
    for second in range(second_steps - 10, second_steps):
        hand_over(folder / f"calls-{second}", first_steps, second, calls=True)


def _steps_to_call(machine: OwnerMachine, number: int) -> int:
    """Start a program, and have it go on until that call has returned. How many steps that were."""
    driver, steps = machine.start(), 0
    assert machine.calls is not None
    while len(machine.calls.made) < number:
        driver.step()
        steps += 1
    return steps


def notes_late(folder: Path) -> None:
    """A program sleeps before it notes that it shows rows. Meanwhile one finishes the job, and another removes all that
    older ones noted. The next program reads what the first one notes then."""
    shows = _steps_alone(folder / "notes-alone", lambda machine: bool(machine.rows()))
    for steps in range(shows - 10, shows):
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(folder / f"notes-{steps}", patch)
            first = machine.start()
            first.step(steps)
            machine.start().step(100_000)
            machine.start().step(100_000)
            first.step(100_000)
            last = machine.start()
            last.step(100_000)
            machine.check(last)


def completes_late(folder: Path) -> None:
    """A checkpoint becomes complete when a second program has claimed the job and not noted what it starts from. A
    third one claims the job, to resume from that checkpoint, and the second gives up."""
    for more in range(16):
        with pytest.MonkeyPatch.context() as patch:
            machine, first, second = _with_late_checkpoint(folder / f"late-{more}", patch)
            third = _claim(machine, more)
            for driver in (second, third, first):
                driver.step(100_000)
            machine.check(third)


def notes_between(folder: Path) -> None:
    """The second program notes its start after all, before the third does: a fourth one finds the older checkpoint, and
    the third shows the newer one."""
    for more in range(16):
        with pytest.MonkeyPatch.context() as patch:
            machine, first, second = _with_late_checkpoint(folder / f"between-{more}", patch)
            third = machine.start()
            _step_until(third, lambda: machine.has("out/.headgate/*/3"))  # noqa: B023 - it is called here
            second.step(100_000)
            assert machine.has("checkpoints/*/owners/2.note")
            fourth = _claim(machine, more)
            for driver in (third, fourth, first):
                driver.step(100_000)
            machine.check(fourth)


def _with_late_checkpoint(folder: Path, patch: pytest.MonkeyPatch) -> tuple[OwnerMachine, Driver, Driver]:
    """The first program, and a second one that has claimed the job before the first one's second checkpoint was
    complete."""
    steps = _steps_alone(folder / "alone", lambda machine: len(machine.complete()) > 1)
    machine = OwnerMachine(folder, patch)
    first = machine.start()
    first.step(steps - 1)
    second = machine.start()
    _step_until(second, lambda: machine.has("out/.headgate/*/2"))
    first.step()
    assert len(machine.complete()) == 2
    return machine, first, second


def completes_late_afresh(folder: Path) -> None:
    """The first checkpoint becomes complete when a second program has claimed the job, to start from nothing."""
    steps = _steps_alone(folder / "afresh-alone", lambda machine: bool(machine.complete()))
    for more in range(12):
        with pytest.MonkeyPatch.context() as patch:
            machine = OwnerMachine(folder / f"afresh-{more}", patch, mode="error")
            first = machine.start()
            first.step(steps - 1)
            second = _claim(machine, more)
            for driver in (first, second):
                driver.step(100_000)
            machine.check(second)


def _claim(machine: OwnerMachine, more: int) -> Driver:
    """Start a program, and have it claim the job and take some steps more."""
    driver = machine.start()
    _step_until(driver, lambda: driver.epoch > 0)
    driver.step(more)
    return driver


def _step_until(driver: Driver, is_done: Callable[[], bool]) -> None:
    while not is_done():
        assert not driver.has_ended
        driver.step()


def _steps_alone(folder: Path, is_done: Callable[[OwnerMachine], bool], *, uploads: bool = False) -> int:
    """How many steps a program takes until that is so."""
    with pytest.MonkeyPatch.context() as patch:
        machine = OwnerMachine(folder, patch, uploads=uploads)
        driver, steps = machine.start(), 0
        while not is_done(machine):
            driver.step()
            steps += 1
        machine.close()
        return steps


def hunt(folder: Path) -> None:
    """All of these orders, the quick ones first."""
    for seed in range(10):
        run(folder / str(seed), seed)
    notes_late(folder)
    completes_late(folder)
    notes_between(folder)
    completes_late_afresh(folder)
    lost_while_replacing(folder / "lost")
    looks_meanwhile(folder)
    calls_meanwhile(folder)
    for uploads in (False, True):
        hand_overs_afresh(folder, "error", uploads=uploads)
        hand_overs_afresh(folder, "overwrite", uploads=uploads)
    named_while_replacing(folder)
    for uploads in (False, True):
        hand_overs(folder / str(uploads), 8, uploads=uploads)
    for seed in range(10, 1000):
        run(folder / str(seed), seed)
