"""Random pipelines and random faults: what sinks show in the end is as if nothing had happened.

A schedule is drawn from a seed: a pipeline that branches, how its barriers go, and faults, each of which strikes when
the job has completed another checkpoint. In some schedules the first fault strikes before the first checkpoint. The
program that runs the job is a process of its own, so it can be killed, paused and replaced as TaskManagers can.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from headgate.state.checkpoint_storage import CheckpointStorage
from tests.runtime.driver_program import Program, Programs
from tests.runtime.faults import open_gate
from tests.runtime.jobs import eventually, pids
from tests.runtime.torn_files import metadata, must_refuse, tear

PATIENCE = 180.0
ROWS = 6000
#: A TaskManager that is paused for less goes on as if nothing had been; one that is paused for longer is replaced.
HEARTBEAT = 1.5

#: The first fault of so many schedules strikes so many seconds after the start of the program, at the most. The first
#: checkpoint is complete after 0.6 s (in threads) to 4 s (in processes, on a busy machine).
EARLY, SOON = 0.3, 2.0

#: How barriers go, and over which flow controls.
MODES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["credit", "tcp"]),
    ({"unaligned": True}, ["credit"]),
    ({"unaligned": True, "aligned_timeout": "10 ms"}, ["credit", "credit"]),
    ({"checkpoint_mode": "at-least-once"}, ["credit", "tcp"]),
]


class Schedule:
    """One of them. `struck` are the faults that have struck, in order, and `early` those of them that did so before the
    first checkpoint; `refused` are those after which a program refused to go on, as it should. `bug` is the module of a
    bug to plant."""

    def __init__(self, programs: Programs, folder: Path, seed: int, *, bug: str = "") -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        mode, flow_controls = self.chance.choice(MODES)
        self._exactly_once = "checkpoint_mode" not in mode
        self._faults = self.chance.choices(list(FAULTS), [FAULTS[kind].weight for kind in FAULTS], k=self._count())
        options = {"flow_control": self.chance.choice(flow_controls), "heartbeat_timeout": HEARTBEAT, **mode}
        options["segment_size"] = self.chance.choice([512, 32 << 10])
        options["network_memory"] = 4000 * options["segment_size"]
        self._first_after = self.chance.uniform(0, SOON) if self.chance.random() < EARLY else None
        self._programs = programs
        self._shape: dict[str, Any] = {
            "seed": seed,
            "rows": ROWS,
            "folder": str(folder),
            "parallelism": self.chance.randint(1, 3),
            "taskmanagers": self.chance.randint(1, 3),
            "processes": any(FAULTS[kind].needs_processes for kind in self._faults),
            "options": options,
            "bug": bug,
        }
        self._answers: list[Path] = []
        self.left: set[int] = set()
        self.driver = self._owner_before = 0
        self.struck: list[str] = []
        self.early: list[str] = []
        self.refused: list[str] = []
        #: The job may fail, with an error of one of these types: it lacks what somebody has removed.
        self.may_fail: tuple[str, ...] = ()
        self.error: str | None = None

    def _count(self) -> int:
        return self.chance.choice([1, 1, 2, 3])

    def run(self) -> None:
        """Raises AssertionError where a row is missing, or there too often, or the job does not end."""
        self.folder.mkdir(parents=True)
        self.start()
        try:
            for number, kind in enumerate(self._faults):
                self._wait(number, kind)
                is_early = not self.newest()
                if not self.has_ended and FAULTS[kind].strike(self):
                    self.struck.append(kind)
                    self.early += [kind] * is_early
            open_gate(self.folder)
            eventually(lambda: self.has_ended, PATIENCE)
            self._look_at_answer()
            eventually(lambda: not any(map(is_alive, self.left)), PATIENCE)
            self._look_at_logs()
            self._check()
        finally:
            self._end()

    def _wait(self, number: int, kind: str) -> None:
        """Until the fault with that number is to strike. What is slept is not for something to come, it is the time."""
        if number == 0 and self._first_after is not None and not FAULTS[kind].needs_checkpoint:
            time.sleep(self._first_after)
            return
        since = self.newest()
        eventually(lambda: self.has_ended or self.newest() > since, PATIENCE)
        time.sleep(self.chance.choice([0.0, 0.0, 0.05, 0.2]))

    # --- for faults

    def start(self) -> None:
        """Another program, which resumes from what is there."""
        self._owner_before = self._storage.newest_owner()
        answer = self.folder / f"answer-{len(self._answers)}"
        self._answers.append(answer)
        self.driver = self._programs.start(Program(**self._shape, answer=str(answer)))

    @property
    def becomes_unaligned(self) -> bool:
        """Whether barriers become unaligned after a timeout, in threads."""
        return "aligned_timeout" in self._shape["options"] and not self._shape["processes"]

    def has_fault(self, kind: str) -> bool:
        return kind in self._faults

    @property
    def can_cut_tasks(self) -> bool:
        """Whether several TaskManagers are processes, which have connections with one another."""
        return bool(self._shape["processes"] and self._shape["taskmanagers"] > 1)

    @property
    def has_claimed(self) -> bool:
        """The program that runs now owns the checkpoints, and has noted where it starts. Before the note it may still
        claim them a second time, if another program has claimed them meanwhile."""
        notes = (self.folder / "checkpoints" / "job" / "owners").glob("*.note")
        return any(int(note.stem) > self._owner_before for note in notes)

    @property
    def has_ended(self) -> bool:
        """The program that runs the job now."""
        return not is_alive(self.driver)

    @property
    def checkpoints(self) -> list[Path]:
        """The folders of complete checkpoints, the newest first."""
        found = [path.parent for path in self.folder.glob("checkpoints/job/chk-*/_metadata")]
        return sorted(found, key=number_of, reverse=True)

    @property
    def line(self) -> list[Path]:
        """The folders of checkpoints from which a job may resume, the newest first. Those that an older program has
        completed too late, or that were skipped, are not there."""
        return [Path(folder) for folder in self._storage.completed()]

    @property
    def _storage(self) -> CheckpointStorage:
        return CheckpointStorage(self.folder / "checkpoints", "job")

    def newest(self) -> tuple[int, ...]:
        there = self.checkpoints
        return number_of(there[0]) if there else ()

    def taskmanager(self) -> int | None:
        """One of the processes, as soon as there is one; None if the program has ended."""
        found: list[int] = []

        def is_there() -> bool:
            with suppress(psutil.Error):
                found.extend(pids(self.driver).values())
            return bool(found) or self.has_ended

        eventually(is_there, PATIENCE)
        return self.chance.choice(found) if found else None

    @contextmanager
    def paused_driver(self) -> Iterator[None]:
        send(self.driver, signal.SIGSTOP)
        try:
            yield
        finally:
            send(self.driver, signal.SIGCONT)

    def kill_driver(self) -> None:
        """Its TaskManagers see that, and end by themselves."""
        with suppress(psutil.Error):
            self.left |= {child.pid for child in psutil.Process(self.driver).children(recursive=True)}
        send(self.driver, signal.SIGKILL)
        eventually(lambda: self.has_ended, PATIENCE)

    # --- the end

    def answer(self, number: int = -1) -> Any:
        """What the last program, or one before, said when it ended."""
        answer = self._answers[number]
        assert answer.exists(), f"the program ended without an answer: {log_of(answer)}"
        return json.loads(answer.read_text())

    def log(self) -> str:
        """What the last program has printed."""
        return Path(f"{self._answers[-1]}.log").read_text()

    def _look_at_answer(self) -> None:
        answer, said = self._answers[-1], self.answer()
        self.error = said["error"]
        known = self.error is None or self.error in self.may_fail
        assert known, f"{said['error']}: {said['message']}\n{log_of(answer)}"

    def _look_at_logs(self) -> None:
        """A restart must not hide an error that no fault explains."""
        for answer in self._answers:
            defect = re.search(r"unexpected (?!ValueError: once)\w+Error.*", Path(f"{answer}.log").read_text())
            assert defect is None, f"{defect[0]}\n{log_of(answer)}"

    def _check(self) -> None:
        pipeline = Program(**self._shape, answer="").pipeline()
        if self.error is not None and self._exactly_once:
            pipeline.check_nothing_doubled(self.folder)
        elif self.error is None:
            pipeline.check(self.folder, exactly_once=self._exactly_once)

    def _end(self) -> None:
        """Leave nothing running."""
        if not self.has_ended:
            self.kill_driver()
        for pid in self.left:
            send(pid, signal.SIGCONT)
        eventually(lambda: not any(map(is_alive, self.left)), PATIENCE)


def number_of(checkpoint: Path) -> tuple[int, ...]:
    """A checkpoint's number; a newer owner's are newer than all of an older one."""
    number, *owner = checkpoint.name.removeprefix("chk-").split("-")
    return int(owner[0]) if owner else 1, int(number)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def log_of(answer: Path) -> str:
    log = Path(f"{answer}.log")
    return log.read_text()[-3000:] if log.exists() else ""


# --- the faults; each says whether it has struck


def kill_taskmanager(schedule: Schedule) -> bool:
    victim = schedule.taskmanager()
    if victim is None:
        return False
    send(victim, signal.SIGKILL)
    return True


def pause_taskmanager(schedule: Schedule) -> bool:
    """For a moment, or until it has been replaced: the driver kills it then, and it cannot come back."""
    victim = schedule.taskmanager()
    if victim is None:
        return False
    send(victim, signal.SIGSTOP)
    time.sleep(schedule.chance.choice([0.1, 0.3, HEARTBEAT * 1.3]))  # the fault itself
    send(victim, signal.SIGCONT)
    return True


def kill_driver(schedule: Schedule) -> bool:
    schedule.kill_driver()
    schedule.start()
    return True


def raise_once(schedule: Schedule) -> bool:
    (schedule.folder / "raise").touch()
    return True


def fill_disk(schedule: Schedule) -> bool:
    """One TaskManager's, until its process is replaced."""
    (schedule.folder / "fill").touch()
    return True


def remove_newest_metadata(schedule: Schedule) -> bool:
    """Before another program resumes. Sinks had nothing to commit with it, so the checkpoint before leads to the same
    rows; else what they committed would come a second time."""
    schedule.kill_driver()
    there = schedule.checkpoints
    strikes = len(there) > 1 and not any(metadata(there[0])["pending"].values())
    if strikes:
        (there[0] / "_metadata").unlink()
    schedule.start()
    return strikes


def pause_driver(schedule: Schedule) -> bool:
    """Another program resumes. When the older one goes on it ends with an error, and does no harm. One that did not own
    the job yet would take it over when it goes on, and be right."""
    eventually(lambda: schedule.has_ended or schedule.has_claimed, PATIENCE)
    if schedule.has_ended:
        return False
    older = schedule.driver
    with suppress(psutil.Error):
        schedule.left |= {child.pid for child in psutil.Process(older).children(recursive=True)}
    send(older, signal.SIGSTOP)
    schedule.left.add(older)
    since = schedule.newest()
    schedule.start()
    eventually(lambda: schedule.has_ended or schedule.newest() > since, PATIENCE)
    send(older, signal.SIGCONT)
    eventually(lambda: not is_alive(older), PATIENCE)
    said = schedule.answer(-2)
    assert said["error"] == "Superseded", f"the older program ended with {said}"
    return True


def remove_committed_metadata(schedule: Schedule) -> bool:
    """Before another program resumes; sinks had something to commit with it. If they have committed it, the program is
    refused by both numbers, and resumes when the file is back."""
    schedule.kill_driver()
    there = schedule.checkpoints
    strikes = len(there) > 1 and any(metadata(there[0])["pending"].values())
    if strikes:
        file, (_, shown) = there[0] / "_metadata", number_of(there[0])
        content = file.read_bytes()
        file.unlink()
        since = schedule.newest()
        schedule.start()
        eventually(lambda: schedule.has_ended or schedule.newest() > since, PATIENCE)
        if not schedule.has_ended or schedule.answer()["error"] is None:
            return True
        said = schedule.answer()["message"]
        numbers = re.search(r"have the rows of checkpoint (\d+), and .* resume from checkpoint (\d+):", said)
        assert numbers is not None, said
        assert int(numbers[1]) == shown > int(numbers[2]), said
        file.write_bytes(content)
    schedule.start()
    return strikes


def remove_folder(schedule: Schedule) -> bool:
    """While the job runs. The folder says who owns the job: so the program ends. Were it to start afresh, its sinks
    would refuse it, for they have files."""
    shutil.rmtree(schedule.folder / "checkpoints" / "job", ignore_errors=True)
    schedule.may_fail = ("CheckpointError", "SinkError", "Superseded")
    return True


def cut_connection(schedule: Schedule) -> bool:
    """One of those that a process has accepted: the driver's from TaskManagers (in threads, of TaskManagers from one
    another, too), or a TaskManager's from another one."""
    lever = schedule.folder / ("cut" if schedule.can_cut_tasks and schedule.chance.random() < 0.7 else "cut-at-driver")
    done, hidden = lever.with_suffix(".done"), lever.with_suffix(".hidden")
    done.unlink(missing_ok=True)
    hidden.write_text(str(schedule.chance.randrange(1000)))
    hidden.rename(lever)
    eventually(lambda: schedule.has_ended or not lever.exists(), PATIENCE)
    since = schedule.newest()  # a process that has no connection cuts none, and the job goes on
    eventually(lambda: schedule.has_ended or done.exists() or schedule.newest() > since, PATIENCE)
    return done.exists()


def tear_before_resume(schedule: Schedule) -> bool:
    """Another program resumes from the checkpoint before, if sinks had nothing to commit with the torn one. Else it is
    refused by the checkpoint's name, and resumes when the file is whole."""
    wait_for_results(schedule) if schedule.chance.random() < 0.5 else wait_for_none(schedule)
    schedule.kill_driver()
    there = schedule.line
    torn = tear(there[0], schedule.chance) if there else None
    if torn is not None:
        since, is_refused = schedule.newest(), must_refuse(there)
        schedule.start()
        eventually(lambda: schedule.has_ended or schedule.newest() > since, PATIENCE)
        if not is_refused:
            said = schedule.log()
            assert f"skips {there[0]}, with which nothing was committed: {torn.file}" in said, said
            return True
        assert schedule.has_ended, f"{torn.file} is torn, and a program resumed from an older checkpoint"
        said = schedule.answer()
        assert said["error"] == "CheckpointError", said
        assert f"{there[0]}: is damaged" in said["message"], said
        torn.mend()
        schedule.refused.append("a state file is torn before a resume")
    schedule.start()
    return torn is not None


def wait_for_results(schedule: Schedule) -> None:
    """Until sinks have something to commit with the newest checkpoint. Another program has new rows."""
    schedule.kill_driver()
    schedule.start()
    wait_for_newest(schedule, lambda there: bool(metadata(there[0])["pending"]), 5)


def wait_for_none(schedule: Schedule) -> None:
    """Until sinks have nothing to commit with the newest of several checkpoints."""
    wait_for_newest(schedule, lambda there: not must_refuse(there), 30)


def wait_for_newest(schedule: Schedule, fits: Callable[[list[Path]], bool], most: int) -> None:
    """Until the newest checkpoint fits, but only so many checkpoints: not every pipeline has such a one soon."""
    since = schedule.newest()
    last = (since[1] if since else 0) + most

    def is_over() -> bool:
        there = schedule.checkpoints
        with suppress(FileNotFoundError):  # it may be removed meanwhile
            is_new = bool(there) and number_of(there[0]) > since
            return is_new and (fits(there) or number_of(there[0])[1] > last)
        return False

    eventually(lambda: schedule.has_ended or is_over(), PATIENCE)


def tear_before_restart(schedule: Schedule) -> bool:
    """A function fails just then. The job restarts from a newer checkpoint, if one is complete by then, or from the one
    before, or it ends with an error that names the file, where `tear_before_resume` would be refused, too."""
    lever = schedule.folder / "raise"
    with schedule.paused_driver():
        there = schedule.line
        torn = tear(there[0], schedule.chance) if there else None
        if torn is not None:
            lever.touch()
    if torn is None:
        return False
    attempt, is_refused = metadata(there[0])["attempt"], must_refuse(there)
    eventually(lambda: schedule.has_ended or attempt_of_newest(schedule) > attempt, PATIENCE)
    torn.mend()
    if schedule.has_ended:
        said = schedule.answer()
        assert said["error"] == "CheckpointError", said
        assert torn.file.name in said["message"], said
        assert is_refused, f"{there[1]} has the same rows as {there[0]}: {said}"
        schedule.refused.append("a state file is torn before a restart")
        schedule.start()
    return True


def attempt_of_newest(schedule: Schedule) -> int:
    with suppress(FileNotFoundError, IndexError):  # it may be removed meanwhile
        return int(metadata(schedule.checkpoints[0])["attempt"])
    return -1


@dataclass(frozen=True)
class Fault:
    strike: Callable[[Schedule], bool]
    needs_processes: bool = False
    needs_checkpoint: bool = False
    weight: int = 1


FAULTS: dict[str, Fault] = {
    "a TaskManager is killed": Fault(kill_taskmanager, needs_processes=True, weight=2),
    "a TaskManager is paused": Fault(pause_taskmanager, needs_processes=True),
    "the program is killed, another resumes": Fault(kill_driver, weight=2),
    "a function raises once": Fault(raise_once),
    "a disk is full": Fault(fill_disk, needs_processes=True),
    "the newest metadata is removed before a resume": Fault(remove_newest_metadata, needs_checkpoint=True),
    "newest metadata with results removed before a resume": Fault(
        remove_committed_metadata, needs_checkpoint=True, weight=4
    ),
    "the program is paused, another resumes, it wakes up": Fault(pause_driver, weight=2),
    "the checkpoint folder is removed": Fault(remove_folder),
    "a connection is cut": Fault(cut_connection, weight=2),
    "a state file is torn before a resume": Fault(tear_before_resume, needs_checkpoint=True, weight=2),
    "a state file is torn before a restart": Fault(tear_before_restart, needs_checkpoint=True, weight=2),
}
