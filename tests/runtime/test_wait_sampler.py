"""How often a TaskManager samples the threads of its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.runtime.task.time_account import TASK
from headgate.runtime.taskmanager import wait_sampler
from headgate.runtime.taskmanager.wait_sampler import WaitSampler


class Worker:
    """A task of which each second `busy` seconds are work, `cpu` on a processor and `delay` waiting for one."""

    def __init__(self, busy: float, cpu: float | None, delay: float | None) -> None:
        self.now, self.busy, self._cpu, self._delay = 0.0, busy, cpu, delay
        self.samples: list[float] = []
        self.times = self.thread = self.task = self

    def seconds(self) -> list[float]:
        return [9 * self.now] * TASK + [self.now * self.busy / 2] * 2

    def cpu(self) -> float | None:
        return None if self._cpu is None else self.now * self._cpu

    def run_delay(self) -> float | None:
        return None if self._delay is None else self.now * self._delay

    def sample(self, now: float) -> None:
        self.samples.append(now)


@pytest.mark.parametrize(
    ("worker", "is_often"),
    [
        (Worker(0.9, 0.7, 0.15), False),
        (Worker(0.0, 0.0, 0.0), False),
        (Worker(0.9, 0.7, 0.05), True),
        (Worker(0.9, None, None), True),
    ],
)
def test_work_without_a_processor_is_sampled_more_often(
    monkeypatch: pytest.MonkeyPatch, worker: Worker, is_often: bool
) -> None:
    clock: Any = SimpleNamespace(monotonic=lambda: worker.now, thread_time=lambda: 0.0)
    monkeypatch.setattr(wait_sampler, "time", clock)
    idle: Any = Worker(0.0, 0.0, 0.0)
    of_one: Any = worker
    sampler = WaitSampler([of_one, idle])
    sampler.sample()
    worker.now = 1.0
    pause = sampler.sample()
    assert worker.samples == idle.samples == [0.0, 1.0]
    assert (0.025 <= pause <= 0.075) if is_often else (0.125 <= pause <= 0.375)
