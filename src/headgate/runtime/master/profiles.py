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
    subtask: int
    answer: Future[Profile]


class Profiles:
    """The requests to one job. Each gets one answer: a profile, or ProfileError.

    Any thread may call `ask`. The job's thread calls the other methods. `_lock` protects the fields below it.
    """

    def __init__(self, topology: Topology, place: Callable[[int], int]) -> None:
        """Create an object without requests. `place` returns the TaskManager of a subtask."""
        self._topology = topology
        self._place = place
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Request] = {}
        #: The attempt whose tasks run, or None; `_refusal` then says why none do.
        self._attempt: Attempt | None = None
        self._refusal = "its tasks have not started yet; ask again when the job runs"

    def operator(self, name: str) -> tuple[VertexShape, OperatorShape]:
        """Return an operator and its vertex. Raises ProfileError, which names similar ones, if there is none."""
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
        """Request a profile of a subtask. Raises ProfileError if there is none such, or its tasks do not run."""
        vertex, shape = self.operator(operator)
        if isinstance(subtask, bool) or not isinstance(subtask, int) or not 0 <= subtask < vertex.parallelism:
            last = vertex.parallelism - 1
            raise ProfileError(f"{operator!r} has no subtask {subtask!r}; they are numbered from 0 to {last}")
        if not isinstance(seconds, (int, float)) or not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
            raise ProfileError(f"seconds={seconds!r}: a profile takes more than 0 and at most {LONGEST:g} seconds")
        request = _Request(operator, subtask, Future())
        with self._lock:
            attempt = self._attempt
            if attempt is None:
                raise ProfileError(f"{operator}[{subtask}] cannot be profiled: {self._refusal}")
            number = next(self._numbers)
            self._waiting[number] = request
        order = TakeProfile(request=number, vertex=vertex.id, subtask=subtask, node=shape.id, seconds=float(seconds))
        attempt.post(lambda: self._send(attempt, order))
        return request.answer

    def _send(self, attempt: Attempt, order: TakeProfile) -> None:
        link = attempt.members[self._place(order.subtask)].link
        if link is not None:
            link.send(order)

    def begin(self, attempt: Attempt) -> None:
        """Note that the tasks of an attempt run."""
        with self._lock:
            self._attempt = attempt

    def end(self, reason: str) -> None:
        """Note that no tasks run any more, and answer all requests with the reason."""
        with self._lock:
            self._attempt, self._refusal = None, reason
            waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            _fail(request, reason)

    def on_message(self, message: FromTaskManager) -> None:
        """Answer a request, if the message is about one that still waits."""
        if not isinstance(message, ReportProfile | DeclineProfile):
            return
        with self._lock:
            request = self._waiting.pop(message.request, None)
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
    """Return the profile that a TaskManager reports. Raises ValueError for what is no profile."""
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
        subtask=request.subtask,
        seconds=report.seconds,
        samples=report.samples,
        cpu_s=report.cpu_s,
        run_delay_s=report.run_delay_s,
        stacks=stacks,
        left_out=report.left_out,
    )


def _text(text: str) -> str:
    return printable(text[-_LONGEST_TEXT:]).replace("\n", "\\n")


def _fail(request: _Request, reason: str) -> None:
    place = f"{request.operator}[{request.subtask}]"
    _answer(request, ProfileError(f"{place} could not be profiled: {reason}"))


def _answer(request: _Request, answer: Profile | HeadgateError) -> None:
    try:
        if isinstance(answer, Profile):
            request.answer.set_result(answer)
        else:
            request.answer.set_exception(answer)
    except InvalidStateError:  # whoever asked waits no longer
        pass
