"""The longest time without output at the sink: while a checkpoint of a million keys runs, and while none runs.

The job makes running sums of paced rows. So for each batch that the source reads, a batch arrives at the sink a moment
later.
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
#: Rows/s. Keys are random: after 13 seconds at this rate, 98 % of the keys have had a row.
RATE = 300_000.0
#: The share of the keys that the state must hold before checkpoints count.
_ENOUGH = 0.95
_INTERVAL = "1 s"
_TIMEOUT = 120.0
_POLL_INTERVAL = 0.1


@dataclass(slots=True)
class Gaps:
    """The longest times, in seconds, in which a subtask of the sink got no rows, by checkpoint.

    `during` looks at the time from a checkpoint's trigger to its completion. `between` looks at the time from the
    completion of the previous checkpoint to the trigger. `durations` (s) and `sizes` (bytes) describe the checkpoints.
    """

    during: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)


def gaps(kind: KeyKind, checkpoints: int, keys: int = KEYS, rate: float = RATE) -> Gaps:
    """Run until `checkpoints` checkpoints were taken with nearly all keys in the state. Return their gaps.

    Raises the job's error, and HeadgateError if the run takes more than two minutes.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder, checkpoint_dir = Path(name, "arrivals"), Path(name, "checkpoints")
        folder.mkdir()
        environment = keyed_environment(checkpoint_dir=checkpoint_dir, checkpoint_interval=_INTERVAL)
        rows = environment.from_source(hg.sources.generate(partial(kind.rows, keys=keys), rate=rate))
        sums = rows.key_by(*kind.columns).aggregate(total=hg.sum("value"), rows=hg.count())
        sums.sink_to(Arrivals(folder))
        job = environment.execute_async("checkpoint-gap")
        try:
            return _gaps_of(_wait_for_checkpoints(job, checkpoints, keys), folder)
        finally:
            job.cancel()


def _wait_for_checkpoints(job: hg.JobHandle, checkpoints: int, keys: int) -> list[Any]:
    """Wait until nearly all keys are in the state, then for `checkpoints` + 1 checkpoints. Return their records."""
    deadline = time.monotonic() + _TIMEOUT
    full_at = None
    while time.monotonic() < deadline:
        if job.status() not in ("CREATED", "RUNNING"):
            job.wait()
        if full_at is None and _keys_held(job) >= _ENOUGH * keys:
            full_at = time.time()
        taken = [each for each in job.checkpoints() if full_at is not None and each.triggered_at >= full_at]
        if len(taken) > checkpoints:
            return taken[: checkpoints + 1]
        time.sleep(_POLL_INTERVAL)
    raise HeadgateError(
        f"checkpoint-gap: {checkpoints} checkpoints of {keys:,} keys took more than {_TIMEOUT:g} s; "
        f"the state holds {_keys_held(job):,} keys"
    )


def _keys_held(job: hg.JobHandle) -> int:
    return max((int(each["state_keys"]) for each in job.metrics()["operators"].values()), default=0)


def _gaps_of(taken: Sequence[Any], folder: Path) -> Gaps:
    epoch = time.time() - time.monotonic()  # arrivals are on the monotonic clock, checkpoints on the clock of the epoch
    times = [[epoch + at for at, _ in batches] for batches in arrivals(folder)]
    assert len(times) == PARALLELISM
    result = Gaps()
    for before, record in pairwise(taken):
        end = record.triggered_at + record.duration
        result.during.append(max(longest_gap(arrived, record.triggered_at, end) for arrived in times))
        between = before.triggered_at + before.duration, record.triggered_at
        result.between.append(max(longest_gap(arrived, *between) for arrived in times))
        result.durations.append(record.duration)
        result.sizes.append(record.size)
    return result


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """Return the longest step between two neighbouring times, of the steps that overlap `begin` to `end`.

    If there is no such step, return the time from `begin` to `end`.
    """
    return max(
        (after - before for before, after in pairwise(times) if after > begin and before < end), default=end - begin
    )
