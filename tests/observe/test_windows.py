"""The windows between snapshots: when they are made, and by which clock the machine's rates go."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headgate.observe import windows_on_demand
from headgate.observe.diagnosis import windows_of
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.metrics_window import Window, window_of
from headgate.observe.series import series_of
from tests.observe.made_metrics import line, snapshots

TOPOLOGY = line("numbers", "out")


def test_a_window_is_made_once_and_only_if_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    def counted(topology: Any, before: MetricsSnapshot, after: MetricsSnapshot) -> Window:
        made.append(after.at)
        return window_of(topology, before, after)

    monkeypatch.setattr(windows_on_demand, "window_of", counted)
    windows = windows_of(TOPOLOGY, snapshots(TOPOLOGY, {}, count=13))
    assert (len(windows), made) == (4, [])
    assert windows[-1].end == 1012.0
    assert [window.end for window in windows[-2:]] == [1009.0, 1012.0]
    assert [window.end for window in windows[:-1][-2:]] == [1006.0, 1009.0]
    assert windows[-3] is windows[1]
    assert made == [1012.0, 1009.0, 1006.0]
    with pytest.raises(IndexError):
        windows[4]


def test_the_rates_of_the_machine_go_by_their_own_clock() -> None:
    taken = snapshots(TOPOLOGY, {}, count=5, machine={"cpu_s": 0.5})
    machines = [snapshot.reports[0]["machine"] for snapshot in taken]
    machines[3].update(machines[2])  # the report repeats the values of the last second
    for machine, second in zip(machines, (0.0, 1.0, 2.0, 2.0, 4.0), strict=True):
        machine["clock_s"] = second
    rates = [window_of(TOPOLOGY, taken[0], taken[end]).processes[0].rate("cpu_s") for end in (2, 3, 4)]
    assert rates == [0.5, 0.5, 0.5]
    assert window_of(TOPOLOGY, taken[2], taken[3]).processes[0].rate("cpu_s") is None
    series = [series_of(before, after)["machine/0/cpu_s"] for before, after in pairwise(taken)]
    assert series == [0.5, 0.5, None, 0.5]
