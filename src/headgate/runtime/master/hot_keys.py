"""`HotKeys`: asks for the hot keys of subtasks that a diagnosis blames on data skew.

A key is data of the user. Only the program of the job sees it: `job.diagnose()` and the program's terminal. It is in no
recording, in no log, on no page and in no metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from headgate.errors import HeadgateError, ProfileError, printable
from headgate.observe.finding import Finding
from headgate.observe.heavy_keys import HotKey
from headgate.plan.job_graph import JobGraph
from headgate.runtime.control_messages import FromDriver, Report, ReportKeys, SampleKeys
from headgate.runtime.master.task_requests import TaskRequests

#: Seconds from one sample to the next, and the length of a sample in seconds.
PERIOD: Final = 60.0
SECONDS: Final = 2.0
#: Seconds after which a sample is too old to describe the job.
_KEPT: Final = 2 * PERIOD
#: The most subtasks that are sampled for one finding.
_SUBTASKS: Final = 3
#: The most keys of a report that the driver takes, and the most characters of a key.
_MOST: Final = 10
_LONGEST_TEXT: Final = 200

_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for the hot keys of one subtask: a `TaskRequest`."""

    taskmanager: int
    order: SampleKeys
    answer: Future[list[HotKey]]

    @property
    def orders(self) -> list[tuple[int, FromDriver]]:
        return [(self.taskmanager, self.order)]

    def result_of(self, report: Report) -> list[HotKey]:
        if not isinstance(report, ReportKeys) or len(report.shares) > _MOST:
            raise ValueError("no hot keys")
        if not all(math.isfinite(share) and 0 <= share <= 1.001 for _, share in report.shares):
            raise ValueError("shares that are no shares")
        return [HotKey(_text(key), share, self.order.subtask) for key, share in report.shares]

    def error(self, reason: str) -> ProfileError:
        return ProfileError(f"the keys of subtask {self.order.subtask} could not be sampled: {reason}")


class HotKeys:
    """Asks for the hot keys of the subtasks that findings blame on data skew, at most once a minute.

    One thread calls `look`. Any thread may call the other methods. `place` returns the TaskManager of a subtask.
    """

    def __init__(self, graph: JobGraph, place: Callable[[int], int], requests: TaskRequests) -> None:
        self._keys = {vertex.id: _keys_by_port(graph, vertex.id) for vertex in graph.vertices}
        self._place = place
        self._requests: TaskRequests | None = requests
        self._asked_at: float | None = None
        #: The last hot keys of each subtask (vertex, subtask), and when they were requested.
        self._found: dict[_Place, tuple[list[HotKey], float]] = {}

    def look(self, findings: Sequence[Finding], now: float) -> None:
        """Request the hot keys of the subtasks in the first finding of data skew, if the last request is old enough."""
        if self._requests is None or (self._asked_at is not None and abs(now - self._asked_at) < PERIOD):
            return
        for finding in findings:
            if finding.cause.name == "data_skew" and finding.vertex is not None and any(self._keys[finding.vertex]):
                self._asked_at = now
                for subtask in finding.subtasks[:_SUBTASKS]:
                    self._ask(self._requests, finding.vertex, subtask, now)
                return

    def _ask(self, requests: TaskRequests, vertex: int, subtask: int, now: float) -> None:
        answer: Future[list[HotKey]] = Future()

        def request(number: int) -> _Request:
            keys = self._keys[vertex]
            order = SampleKeys(request=number, vertex=vertex, subtask=subtask, keys=keys, seconds=SECONDS)
            return _Request(self._place(subtask), order, answer)

        def note(done: Future[list[HotKey]]) -> None:
            try:
                self._found = {**self._found, (vertex, subtask): (done.result(0), now)}
            except HeadgateError:  # the task or the job has ended meanwhile
                pass

        requests.ask(request)
        answer.add_done_callback(note)

    def close(self) -> None:
        """Request no more samples."""
        self._requests = None

    def explained(self, findings: Sequence[Finding], now: float) -> list[Finding]:
        """Return the findings. Those of data skew whose subtasks were sampled lately get the hot keys."""
        return [
            replace(finding, hot_keys=self._keys_of(finding, now)) if finding.cause.name == "data_skew" else finding
            for finding in findings
        ]

    def _keys_of(self, finding: Finding, now: float) -> tuple[HotKey, ...]:
        places = [(finding.vertex, subtask) for subtask in finding.subtasks]
        recent = [self._found[each] for each in places if each in self._found]
        keys = [key for found, at in recent if abs(now - at) <= _KEPT for key in found]
        return tuple(sorted(keys, key=lambda key: -key.share))


def _keys_by_port(graph: JobGraph, vertex: int) -> list[list[str]]:
    """Return the key columns of each input of a vertex's operator. An input without a key has none."""
    keys: dict[int, list[str]] = {}
    for edge in graph.edges:
        if edge.target == vertex:
            keys[edge.port] = list(edge.partitioning.keys) if edge.partitioning.kind == "key_group" else []
    return [keys.get(port, []) for port in range(max(keys, default=-1) + 1)]


def _text(key: str) -> str:
    return printable(key[:_LONGEST_TEXT]).replace("\n", "\\n")
