"""A queue that grows window by window, or only in the mean, or only once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headgate.observe.diagnosis import windows_of
from headgate.observe.trend import is_behind
from tests.observe.made_metrics import line, snapshots

#: The rows that come in a second.
COME = 100


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([50, 50, 50], True),
        ([100, 100, 100], False),
        ([50, 50], False),
        ([0, 110, 0, 100], True),
        ([110, 0, 110, 0, 110], True),
        ([0, 200, 0, 200, 0, 200], False),
        ([20, 100, 100, 100], False),
        ([60, 60, 100, 100, 100], False),
        ([100, 100, 100, 50, 50, 50], True),
    ],
    ids=[
        "each window", "as many as come", "not for long", "a batch takes two windows, the first", "or the last",
        "all rows that came at once", "it filled at the start", "it filled in two windows", "since a while",
    ],
)  # fmt: skip
def test_a_job_is_behind_while_a_queue_keeps_growing(taken: Sequence[int], expected: bool) -> None:
    """`taken` are the rows that a task which never idles takes in a second of each window, the oldest first."""
    topology = line("numbers", "sums", parallelism=1)
    windows = [
        windows_of(topology, snapshots(topology, {(0, 0): {"rows": COME}, (1, 0): {"busy_s": 1.0, "rows": rows}}))[0]
        for rows in taken
    ]
    assert is_behind(windows) is expected
    idle = [
        windows_of(topology, snapshots(topology, {(0, 0): {"rows": COME}, (1, 0): {"busy_s": 0.9, "rows": rows}}))[0]
        for rows in taken
    ]
    assert not is_behind(idle)
