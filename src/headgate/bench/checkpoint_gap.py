"""How long nothing comes to the sink while a checkpoint of a million keys is taken, and while none is.

Running sums of paced rows, so each batch that is read is followed by one at the sink a moment later.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import headgate as hg
from headgate.bench.arrivals import Arrivals, arrivals
from headgate.bench.keyed_job import PARALLELISM, keyed_environment
from headgate.bench.keys_job import KeyKind
from headgate.errors import HeadgateError

KEYS = 1_000_000
#: Rows/s; keys are drawn by chance, so after thirteen seconds 98 of 100 were there.
RATE = 300_000.0
#: This part of the keys must be there before checkpoints count.
_ENOUGH = 0.95
_INTERVAL = "1 s"
_PATIENCE = 120.0
_LOOK = 0.1


@dataclass(slots=True)
class Gaps:
    """The longest times, in seconds, in which one of the sink's subtasks got nothing: during each checkpoint, from
    trigger to completion, and between it and the one before. `durations` (s) and `sizes` (bytes) are theirs."""

    during: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)


def gaps(kind: KeyKind, checkpoints: int, keys: int = KEYS, rate: float = RATE) -> Gaps:
    """Run until so many checkpoints were taken with nearly all keys there. Raises HeadgateError."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder, kept = Path(name, "arrivals"), Path(name, "checkpoints")
        folder.mkdir()
        environment = keyed_environment(checkpoint_dir=kept, checkpoint_interval=_INTERVAL)
        rows = environment.from_source(hg.sources.generate(partial(kind.rows, keys=keys), rate=rate))
        sums = rows.key_by(*kind.columns).aggregate(total=hg.sum("value"), rows=hg.count())
        sums.sink_to(Arrivals(folder))
        job = environment.execute_async("checkpoint-gap")
        try:
            return _gaps(_taken(job, checkpoints, keys), folder)
        finally:
            job.cancel()


def _taken(job: hg.JobHandle, checkpoints: int, keys: int) -> list[Any]:
    """The records of `checkpoints` + 1 of them in a row."""
    deadline = time.monotonic() + _PATIENCE
    full_at = None
    while time.monotonic() < deadline:
        if job.status() not in ("CREATED", "RUNNING"):
            job.wait()
        if full_at is None and _keys_held(job) >= _ENOUGH * keys:
            full_at = time.time()
        taken = [each for each in job.checkpoints() if full_at is not None and each.triggered_at >= full_at]
        if len(taken) > checkpoints:
            return taken[: checkpoints + 1]
        time.sleep(_LOOK)
    raise HeadgateError(f"checkpoint-gap: {checkpoints} checkpoints of {keys:,} keys took more than {_PATIENCE:g} s")


def _keys_held(job: hg.JobHandle) -> int:
    return max((int(each["state_keys"]) for each in job.metrics()["operators"].values()), default=0)


def _gaps(taken: Sequence[Any], folder: Path) -> Gaps:
    epoch = time.time() - time.monotonic()  # arrivals are on the one clock, records on the other
    times = [[epoch + at for at, _ in came] for came in arrivals(folder)]
    assert len(times) == PARALLELISM
    found = Gaps()
    for before, record in pairwise(taken):
        end = record.triggered_at + record.duration
        found.during.append(max(longest_gap(each, record.triggered_at, end) for each in times))
        between = before.triggered_at + before.duration, record.triggered_at
        found.between.append(max(longest_gap(each, *between) for each in times))
        found.durations.append(record.duration)
        found.sizes.append(record.size)
    return found


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """The longest of the steps between two times in a row, of those that overlap with the span."""
    return max(
        (after - before for before, after in pairwise(times) if after > begin and before < end), default=end - begin
    )
