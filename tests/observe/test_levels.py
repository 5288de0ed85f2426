"""Levels of back-pressure, of subtasks and of their vertices."""

from __future__ import annotations

from headgate.observe.diagnosis import windows_of
from headgate.observe.levels import backpressure
from tests.observe.made_metrics import line, snapshots


def test_a_vertex_has_the_level_of_its_worst_subtask() -> None:
    topology = line("numbers", "out")
    tasks = {
        (0, 0): {"soft_backpressured_s": 0.3, "hard_backpressured_s": 0.3, "busy_s": 0.4},
        (0, 1): {"soft_backpressured_s": 0.05, "idle_s": 0.95},
    }
    window = windows_of(topology, snapshots(topology, tasks))[-1]
    numbers, out = backpressure(window)
    assert (numbers["vertex"], numbers["level"], numbers["ratio"]) == ("numbers", "HIGH", 0.6)
    assert [subtask["level"] for subtask in numbers["subtasks"]] == ["HIGH", "OK"]
    assert (numbers["idle_ratio"], numbers["busy_ratio"]) == (0.95, 0.4)
    assert (out["level"], out["idle_ratio"]) == ("OK", 1.0)
