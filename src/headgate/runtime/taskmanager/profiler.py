"""`Profiler`: takes profiles of a TaskManager's tasks, when the driver requests them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from headgate.observe.profile import packed
from headgate.runtime.control_messages import DeclineRequest, FromTaskManager, ReportProfile, TakeProfile
from headgate.runtime.task.heads import SourceHead
from headgate.runtime.task.task_builder import BuiltTask
from headgate.runtime.taskmanager.sampler import Sampler

log = logging.getLogger(__name__)

#: The most profiles that a TaskManager takes at the same time.
MOST: Final = 4
#: The most stacks of a profile, and about the most characters of its message.
MOST_STACKS: Final = 500
MOST_CHARACTERS: Final = 256 << 10
#: The most seconds that `close` waits for each thread that takes a profile.
_END_TIMEOUT: Final = 2.0


class Profiler:
    """Takes the requested profiles, each on a thread of its own. One thread calls `take` and `close`."""

    def __init__(self, send: Callable[[FromTaskManager], None]) -> None:
        self._send = send
        self._threads: dict[threading.Thread, Sampler] = {}

    def take(self, order: TakeProfile, tasks: Sequence[BuiltTask]) -> None:
        """Begin to take a profile, and send it when it is complete."""
        self._threads = {thread: each for thread, each in self._threads.items() if thread.is_alive()}
        built = next((each for each in tasks if (each.vertex.id, each.subtask) == (order.vertex, order.subtask)), None)
        if built is None:
            self._decline(order, "the task has not started yet: its input is not complete")
        elif built.task.has_ended:
            self._decline(order, _ENDED)
        elif built.task.thread.cpu() is None:
            self._decline(order, _NO_CLOCK)
        elif len(self._threads) >= MOST:
            self._decline(order, f"its TaskManager is already taking {MOST} profiles; ask again when they are complete")
        else:
            self._start(order, Sampler(built.task.thread, built.task.times, _bucket(built, order.node)))

    def _start(self, order: TakeProfile, sampler: Sampler) -> None:
        thread = threading.Thread(
            target=self._run, args=(order, sampler), name=f"headgate-profile-{order.request}", daemon=True
        )
        self._threads[thread] = sampler
        thread.start()

    def _run(self, order: TakeProfile, sampler: Sampler) -> None:
        try:
            sampler.run(order.seconds)
            if not sampler.samples:
                self._decline(order, _ENDED)
                return
            (frames, stacks), left_out = packed(sampler.stacks(), MOST_STACKS, MOST_CHARACTERS)
        except Exception as error:  # a profile that fails is no reason for a job to fail
            log.exception("error in a profile")
            self._decline(order, f"unexpected {type(error).__name__}: {error}")
            return
        self._send(
            ReportProfile(
                request=order.request,
                seconds=sampler.seconds,
                looks=sampler.looks,
                samples=sampler.samples,
                cpu_s=sampler.cpu,
                run_delay_s=sampler.run_delay,
                frames=frames,
                stacks=stacks,
                left_out=left_out,
            )
        )

    def _decline(self, order: TakeProfile, reason: str) -> None:
        self._send(DeclineRequest(request=order.request, reason=reason))

    def close(self) -> None:
        """End all threads. Each first sends the samples that it has taken so far as its profile."""
        for sampler in self._threads.values():
            sampler.stop()
        for thread in self._threads:
            thread.join(_END_TIMEOUT)


_ENDED: Final = "the task has ended"
_NO_CLOCK: Final = "the TaskManager's system does not give the processor time of a thread (macOS does not, Linux does)"


def _bucket(built: BuiltTask, node: int) -> int:
    """Return the bucket in which the task's `TimeAccount` counts the operator's work."""
    instance = built.nodes[node]
    if isinstance(instance, SourceHead):
        return instance.bucket
    return next(entry.bucket for entry in built.task.operators if entry.operator is instance)
