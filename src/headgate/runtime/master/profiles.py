"""`Profiles`: the requests to profile a task of one job, and the profiles that its TaskManagers report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from headgate.errors import ProfileError, printable
from headgate.observe.profile import Frame, Profile, unpacked
from headgate.observe.topology import OperatorShape, Topology, VertexShape
from headgate.runtime.control_messages import FromDriver, Report, ReportProfile, TakeProfile
from headgate.runtime.master.task_requests import TaskRequests

#: The longest profile, in seconds.
LONGEST: Final = 60.0
#: The most frames and stacks of a profile that the driver takes. TaskManagers send fewer.
_MOST: Final = 50_000
#: The most characters of a name or a path that the driver shows.
_LONGEST_TEXT: Final = 400
#: How many names an error lists.
_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for the profile of one subtask: a `TaskRequest`."""

    operator: str
    taskmanager: int
    order: TakeProfile
    answer: Future[Profile]

    @property
    def orders(self) -> list[tuple[int, FromDriver]]:
        return [(self.taskmanager, self.order)]

    def result_of(self, report: Report) -> Profile:
        if not isinstance(report, ReportProfile):
            raise ValueError("no profile")
        return _profile(self, report)

    def error(self, reason: str) -> ProfileError:
        return ProfileError(f"{self.operator}[{self.order.subtask}] could not be profiled: {reason}")


class Profiles:
    """The requests to profile a task of one job. Each request gets one answer: a profile, or ProfileError.

    Any thread may call all methods.
    """

    def __init__(self, topology: Topology, place: Callable[[int], int], requests: TaskRequests) -> None:
        """`place` returns the TaskManager of a subtask."""
        self._topology = topology
        self._place = place
        self._requests = requests
        #: The last profile that was complete, whoever asked for it.
        self.last: Profile | None = None

    def operator(self, name: str) -> tuple[VertexShape, OperatorShape]:
        """Return an operator and its vertex. If there is no such operator, raises ProfileError with similar names."""
        shapes = {shape.name: (vertex, shape) for vertex in self._topology.vertices for shape in vertex.operators}
        if name in shapes:
            return shapes[name]
        near = get_close_matches(str(name), shapes, 3, cutoff=0.5)
        listed = near or list(shapes)[:_NAMES]
        text = "did you mean" if near else "it has"
        raise ProfileError(
            f"job {self._topology.job!r} has no operator {name!r}; {text} {', '.join(map(repr, listed))}"
            + ("?" if near else "" if len(listed) == len(shapes) else f" and {len(shapes) - len(listed)} more")
        )

    def ask(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        """Request a profile of one subtask, over `seconds` seconds. Raises ProfileError for an unknown operator or
        subtask."""
        vertex, shape = self.operator(operator)
        if isinstance(subtask, bool) or not isinstance(subtask, int) or not 0 <= subtask < vertex.parallelism:
            last = vertex.parallelism - 1
            raise ProfileError(f"{operator!r} has no subtask {subtask!r}; they are numbered from 0 to {last}")
        if not isinstance(seconds, (int, float)) or not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
            raise ProfileError(f"seconds={seconds!r}: a profile takes more than 0 and at most {LONGEST:g} seconds")
        answer: Future[Profile] = Future()
        answer.add_done_callback(self._note)

        def request(number: int) -> _Request:
            order = TakeProfile(
                request=number, vertex=vertex.id, subtask=subtask, node=shape.id, seconds=float(seconds)
            )
            return _Request(operator, self._place(subtask), order, answer)

        self._requests.ask(request)
        return answer

    def _note(self, answer: Future[Profile]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.last = answer.result()


def _profile(request: _Request, report: ReportProfile) -> Profile:
    """Return the profile that a TaskManager reports. Raises ValueError for a report that cannot be a profile."""
    size = len(report.frames) + sum(len(stack[0]) for stack in report.stacks)
    if size > _MOST:
        raise ValueError(f"a profile of {size} frames; at most {_MOST} are allowed")
    frames = [Frame(_text(frame.file), frame.line, _text(frame.function), frame.kind) for frame in report.frames]
    stacks = unpacked(frames, report.stacks)
    seen = sum(stack.samples for stack in stacks) + report.left_out
    if not 0 <= report.left_out <= seen <= report.samples:
        raise ValueError(f"{seen} samples of an operator, and {report.samples} of its task")
    return Profile(
        operator=request.operator,
        subtask=request.order.subtask,
        ended_at=time.time(),
        seconds=report.seconds,
        looks=report.looks,
        samples=report.samples,
        cpu_s=report.cpu_s,
        run_delay_s=report.run_delay_s,
        stacks=stacks,
        left_out=report.left_out,
    )


def _text(text: str) -> str:
    return printable(text[-_LONGEST_TEXT:]).replace("\n", "\\n")
