"""`MeasuredTasks`: the metrics of a TaskManager, and how often it reports them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from headgate.memory.network_pool import NetworkBufferPool
from headgate.runtime.task.task_builder import BuiltTask
from headgate.runtime.taskmanager.channel_report import ChannelReport
from headgate.runtime.taskmanager.counters import snapshot
from headgate.runtime.taskmanager.data_links import DataLinks
from headgate.runtime.taskmanager.process_evidence import ProcessEvidence
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.wait_sampler import WaitSampler

#: The usual seconds from one report to the next.
_INTERVAL: Final = 0.25
#: If reports used a larger share of a processor, they come less often, but at least each `_LONG_INTERVAL` seconds.
_SHARE: Final = 0.0025
_LONG_INTERVAL: Final = 0.5
#: The largest share of a processor that reports may use. Those of many tasks may come less often still.
_LARGEST_SHARE: Final = 0.02


def pause_after(cost: float) -> float:
    """Return the seconds from one report to the next, if a report takes `cost` processor seconds.

    >>> [pause_after(cost) for cost in (0.0005, 0.001, 0.003, 0.04)]
    [0.25, 0.4, 0.5, 2.0]
    """
    return max(_INTERVAL, min(cost / _SHARE, _LONG_INTERVAL), cost / _LARGEST_SHARE)


class MeasuredTasks:
    """Reads the metrics of the tasks in `built`, a list that grows, and of the process on `host`.

    After `start`, the metrics show what slows the process and its tasks down. Only one thread uses the object.
    """

    def __init__(self, built: Sequence[BuiltTask], host: str, signals: SignalCount) -> None:
        self.evidence = ProcessEvidence()
        self._built = built
        self._host = host
        self._signals = signals
        self._channels = ChannelReport()
        self._waits: WaitSampler | None = None

    def start(self, sample: bool) -> None:
        """Measure from now on. `sample` says whether to sample the tasks' threads, too."""
        self.evidence.start()
        if sample:
            self._waits = WaitSampler(self._built)
            self._waits.start()

    def stop(self) -> None:
        """Stop measuring."""
        if self._waits is not None:
            self._waits.stop()
        self.evidence.stop()

    def add(self, tasks: Sequence[BuiltTask]) -> None:
        """Watch the channels of more tasks."""
        self._channels.add(tasks)

    def read(self, pool: NetworkBufferPool, links: DataLinks, *, is_last: bool) -> dict[str, Any]:
        """Return the current metrics for a report to the driver. `is_last` says whether it is the last report."""
        now = time.monotonic()
        return snapshot(
            self._built,
            pool,
            remote_bytes=links.bytes_received,
            sendfile_bytes=links.bytes_sent_by_sendfile,
            throttle_signals=self._signals.signals,
            link_bytes=links.bytes_under_way,
            host=self._host,
            clock=now,
            machine=self.evidence.read(now, is_last=is_last),
            channels=self._channels.columns(now),
            links=links.rows(),
            collected=self.evidence.collected,
        )
