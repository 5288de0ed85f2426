"""`TaskRequests`: sends requests for profiles, traces and samples to the tasks of one job, and takes the answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Protocol

from headgate.errors import HeadgateError, printable
from headgate.runtime.control_messages import DeclineRequest, FromDriver, Report
from headgate.runtime.master.attempt import Attempt

#: The most characters of a reason that the driver shows.
_LONGEST_REASON: Final = 400


class TaskRequest(Protocol):
    """One request for a profile, a trace or a sample. `TaskRequests` sets its `answer` once: a result or an error."""

    @property
    def orders(self) -> Sequence[tuple[int, FromDriver]]:
        """The messages to send, each with the number of its TaskManager."""

    @property
    def answer(self) -> Future[Any]: ...

    def result_of(self, report: Report) -> object | None:
        """Take a report of a TaskManager. Returns the result, or None if the request still waits for another report.

        Raises ValueError for an invalid report.
        """

    def error(self, reason: str) -> HeadgateError:
        """Return the error for the answer. `reason` says why there is no result."""


class TaskRequests:
    """The requests for profiles, traces and samples of one job. Each request gets one answer.

    While the job starts or restarts, requests wait until its tasks run. Any thread may call `ask`. The job's thread
    calls the other methods. `_lock` protects the fields after it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        #: The requests that are not sent yet, and those that wait for their answer, by number.
        self._new: dict[int, TaskRequest] = {}
        self._sent: dict[int, TaskRequest] = {}
        #: The attempt whose tasks run, or None.
        self._attempt: Attempt | None = None
        #: The answer to requests that come after the job's end.
        self._too_late = ""

    def ask(self, make: Callable[[int], TaskRequest]) -> TaskRequest:
        """Create a request with `make`, which gets the request's number. Send the request as soon as the tasks run."""
        with self._lock:
            number = next(self._numbers)
            request = make(number)
            attempt, too_late = self._attempt, self._too_late
            if not too_late:
                self._new[number] = request
        if too_late:
            _answer(request, request.error(too_late))
        elif attempt is not None:
            attempt.post(self._send)
        return request

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
            new, self._new = self._new, {}
            self._sent.update(new)
        for taskmanager, order in (each for request in new.values() for each in request.orders):
            link = attempt.members[taskmanager].link
            if link is not None:
                link.send(order)

    def interrupted(self, reason: str) -> None:
        """Record that the tasks no longer run, and answer the requests that were sent: they fail with `reason`."""
        with self._lock:
            self._attempt = None
            sent, self._sent = self._sent, {}
        for request in sent.values():
            _answer(request, request.error(reason))

    def close(self, reason: str) -> None:
        """Answer all requests, also later ones, because the job is over."""
        self.interrupted(reason)
        with self._lock:
            self._too_late = reason
            new, self._new = self._new, {}
        for request in new.values():
            _answer(request, request.error(reason))

    def on_message(self, message: Report | DeclineRequest) -> None:
        """Take a TaskManager's answer to a request. Ignore the message if the request no longer waits."""
        with self._lock:
            request = self._sent.get(message.request)
        if request is None:
            return
        result = _result(request, message)
        if result is not None:
            with self._lock:
                self._sent.pop(message.request, None)
            _answer(request, result)


def _result(request: TaskRequest, message: Report | DeclineRequest) -> object | None:
    if isinstance(message, DeclineRequest):
        return request.error(printable(message.reason[:_LONGEST_REASON]))
    try:
        return request.result_of(message)
    except ValueError as error:
        return request.error(f"its TaskManager sent {error}")


def _answer(request: TaskRequest, answer: object) -> None:
    try:
        if isinstance(answer, HeadgateError):
            request.answer.set_exception(answer)
        else:
            request.answer.set_result(answer)
    except InvalidStateError:  # the caller no longer waits
        pass
