"""Say whether a recording shows how long tasks wait for the interpreter lock."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.observe.metrics_snapshot import Counters
from headgate.observe.recording import Recording


def lock_samples(recording: Recording) -> str:
    """Return how many tasks have samples of the interpreter lock, or why none has. The last snapshot counts."""
    last = recording.snapshots[-1].reports if recording.snapshots else ()
    tasks = [task for report in last for task in report["tasks"]]
    known = sum(task.get("at_lock_s") is not None and task.get("running_s") is not None for task in tasks)
    return f"by samples of {known} of {len(tasks)} tasks" if known else f"unknown, because {_why_not(recording, tasks)}"


def _why_not(recording: Recording, tasks: Sequence[Counters]) -> str:
    if "metrics" in recording.facts.get("options", {}):  # it is there only if it is off
        return "the job ran with metrics=False"
    if not tasks:
        return "no task has reported"
    if not any("at_lock_s" in task for task in tasks):
        return "the job's version of Headgate took no samples of it"
    if any(task.get("disk_wait_s") is not None for task in tasks):
        return "the system does not show the system calls of threads, or where the interpreter's data lie"
    return "the system does not show what threads do"
