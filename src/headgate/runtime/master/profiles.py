"""`Profiles`: the requests to profile a task of one job, and the answers of its TaskManagers."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from headgate.errors import HeadgateError, ProfileError, printable
from headgate.observe.profile import Frame, Profile, unpacked
from headgate.observe.topology import OperatorShape, Topology, VertexShape
from headgate.runtime.control_messages import DeclineProfile, FromTaskManager, ReportProfile, TakeProfile
from headgate.runtime.master.attempt import Attempt

#: The longest profile, in seconds.
LONGEST: Final = 60.0
#: The most frames and stacks of a profile that the driver takes. TaskManagers send fewer.
_MOST: Final = 50_000
#: The most characters of a name, a path or a reason that the driver shows.
_LONGEST_TEXT: Final = 400
#: How many names an error lists.
_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class _Request:
    operator: str
    order: TakeProfile
    answer: Future[Profile]


class Profiles:
    """The requests to one job. Each gets one answer: a profile, or ProfileError.

    A request to a job that starts or restarts waits until its tasks run. Any thread may call `ask`. The job's thread
    calls the other methods. `_lock` protects the fields below it.
    """

    def __init__(self, topology: Topology, place: Callable[[int], int]) -> None:
        """Create an object without requests. `place` returns the TaskManager of a subtask."""
        self._topology = topology
        self._place = place
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        #: The requests that are not sent yet, and those that wait for their answer, by number.
        self._new: list[_Request] = []
        self._sent: dict[int, _Request] = {}
        #: The attempt whose tasks run, or None.
        self._attempt: Attempt | None = None
        #: The answer to requests that come after the job's end.
        self._too_late = ""

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
        """Request a profile of `seconds` seconds. Raises ProfileError if there is no such operator or subtask."""
        vertex, shape = self.operator(operator)
        if isinstance(subtask, bool) or not isinstance(subtask, int) or not 0 <= subtask < vertex.parallelism:
            last = vertex.parallelism - 1
            raise ProfileError(f"{operator!r} has no subtask {subtask!r}; they are numbered from 0 to {last}")
        if not isinstance(seconds, (int, float)) or not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
            raise ProfileError(f"seconds={seconds!r}: a profile takes more than 0 and at most {LONGEST:g} seconds")
        order = TakeProfile(
            request=next(self._numbers), vertex=vertex.id, subtask=subtask, node=shape.id, seconds=float(seconds)
        )
        request = _Request(operator, order, Future())
        with self._lock:
            attempt, too_late = self._attempt, self._too_late
            if not too_late:
                self._new.append(request)
        if too_late:
            _fail(request, too_late)
        elif attempt is not None:
            attempt.post(self._send)
        return request.answer

    def begin(self, attempt: Attempt) -> None:
        """Record that the tasks of an attempt run, and send the waiting requests."""
        with self._lock:
            self._attempt = attempt
        self._send()

    def _send(self) -> None:
        with self._lock:
            attempt = self._attempt
            if attempt is None:
                return
            new, self._new = self._new, []
            self._sent.update((request.order.request, request) for request in new)
        for request in new:
            link = attempt.members[self._place(request.order.subtask)].link
            if link is not None:
                link.send(request.order)

    def interrupted(self, reason: str) -> None:
        """Record that the tasks no longer run, and answer the requests that were sent. `reason` is their error."""
        with self._lock:
            self._attempt = None
            sent, self._sent = self._sent, {}
        for request in sent.values():
            _fail(request, reason)

    def close(self, reason: str) -> None:
        """Answer all requests, also later ones, because the job is over."""
        self.interrupted(reason)
        with self._lock:
            self._too_late = reason
            new, self._new = self._new, []
        for request in new:
            _fail(request, reason)

    def on_message(self, message: FromTaskManager) -> None:
        """Answer a request, if the message is about one that still waits."""
        if not isinstance(message, ReportProfile | DeclineProfile):
            return
        with self._lock:
            request = self._sent.pop(message.request, None)
        if request is None:
            return
        if isinstance(message, DeclineProfile):
            _fail(request, printable(message.reason[:_LONGEST_TEXT]))
            return
        try:
            profile = _profile(request, message)
        except ValueError as error:
            _fail(request, f"its TaskManager sent {error}")
            return
        _answer(request, profile)


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


def _fail(request: _Request, reason: str) -> None:
    place = f"{request.operator}[{request.order.subtask}]"
    _answer(request, ProfileError(f"{place} could not be profiled: {reason}"))


def _answer(request: _Request, answer: Profile | HeadgateError) -> None:
    try:
        if isinstance(answer, Profile):
            request.answer.set_result(answer)
        else:
            request.answer.set_exception(answer)
    except InvalidStateError:  # the caller has cancelled the request
        pass
