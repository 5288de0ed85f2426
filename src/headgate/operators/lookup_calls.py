"""`LookupCalls`: calls of a user's lookup function, several at a time, each with a time limit and retries.

Each call has a thread of its own, or a task of an event loop if the function is `async`. A function that does not
return in time keeps its thread; Python cannot end it. The thread is a daemon, so that the process can end.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa

from headgate.errors import SourceError, UserFunctionError
from headgate.operators.operator import call_user, function_name

#: The pause before the first retry, seconds. Each further pause is twice as long, up to `_LONGEST_PAUSE`.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
#: The most seconds of a wait in which the task does nothing else.
_SLICE = 0.1


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How a lookup function is called. `batch_keys` is the most keys in a call, and `concurrency` the most calls at a
    time. A call may take `timeout` seconds. A failed call is repeated `retries` times."""

    batch_keys: int
    concurrency: int
    timeout: float
    retries: int


class LookupCalls:
    """The calls for one subtask. `of_keys` waits until all calls have returned. `waited` is the number of seconds of
    all waits so far, with the current one. Each wait calls `let_task_work` several times per second. If that raises an
    error, such as a cancel, the wait ends.
    """

    def __init__(
        self, function: Callable[..., Any], limits: CallLimits, name: str, let_task_work: Callable[[], None]
    ) -> None:
        self._function = function
        self._limits = limits
        self._name = name
        self._let_task_work = let_task_work
        self._numbers = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waited = 0.0

    def of_keys(self, keys: pa.RecordBatch) -> list[Any]:
        """Return what the function returned for each part of the keys, in order.

        Raises UserFunctionError, or SourceError from an `AskedTable`, if a call failed or took too long in all
        attempts.
        """
        size = self._limits.batch_keys
        parts = [keys.slice(start, size) for start in range(0, keys.num_rows, size)]
        return self._with_retries(parts)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _with_retries(self, parts: Sequence[pa.RecordBatch]) -> list[Any]:
        results: dict[int, Any] = {}
        pause = _FIRST_PAUSE
        for attempt in range(self._limits.retries + 1):
            failed = self._round([index for index in range(len(parts)) if index not in results], parts, results)
            if failed is None:
                return [results[index] for index in range(len(parts))]
            if attempt == self._limits.retries:
                raise self._failure(failed)
            self._wait(pause, _pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("unreachable")

    def _failure(self, error: UserFunctionError | SourceError) -> UserFunctionError | SourceError:
        """Return the last error, with the number of attempts."""
        times = self._limits.retries + 1
        return error if times == 1 else type(error)(f"all {times} attempts failed; the last: {error.message}")

    def _round(
        self, indices: Sequence[int], parts: Sequence[pa.RecordBatch], results: dict[int, Any]
    ) -> UserFunctionError | SourceError | None:
        """Call the function for these parts, at most `concurrency` at a time. Returns the last error, or None if no
        call failed."""
        error: UserFunctionError | SourceError | None = None
        for start in range(0, len(indices), self._limits.concurrency):
            some = indices[start : start + self._limits.concurrency]
            calls = [(index, self._begin(parts[index])) for index in some]
            deadline = time.monotonic() + self._limits.timeout
            for index, call in calls:
                try:
                    self._wait(deadline - time.monotonic(), partial(_is_done, call))
                    results[index] = call.result(0)
                except TimeoutError:
                    call.cancel()
                    error = UserFunctionError(
                        f"{function_name(self._function)} did not return within {self._limits.timeout:g} s for "
                        f"{parts[index].num_rows} keys; allow more with timeout=, or ask for fewer with batch_keys="
                    )
                except (UserFunctionError, SourceError) as failure:
                    error = failure
        return error

    def _wait(self, seconds: float, is_over: Callable[[float], bool]) -> None:
        """Call `is_over(timeout)`, which waits at most `timeout` seconds, until it returns True or `seconds` have
        passed.

        Between the calls the task does its other work.
        """
        now = time.monotonic()
        deadline, is_ended = now + seconds, False
        while not is_ended and now < deadline:
            is_ended = is_over(min(deadline - now, _SLICE))
            before, now = now, time.monotonic()
            self.waited += now - before
            self._let_task_work()

    def _begin(self, keys: pa.RecordBatch) -> Future[Any]:
        if _is_async(self._function):
            return asyncio.run_coroutine_threadsafe(self._awaited(keys), self._running_loop())
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # nobody can cancel it: a thread cannot be stopped
        self._start_thread(_call, future, self._function, keys)
        return future

    async def _awaited(self, keys: pa.RecordBatch) -> Any:
        try:
            return await self._function(keys)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            call_user(_raiser(error, self._function))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._start_thread(_run, self._loop)
        return self._loop

    def _start_thread(self, target: Callable[..., None], *arguments: Any) -> None:
        name = f"headgate-{self._name}-{next(self._numbers)}"
        threading.Thread(target=target, args=arguments, name=name, daemon=True).start()


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call gives a coroutine: of an `async` function, or of an object with an `async` `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _pause(timeout: float) -> bool:
    time.sleep(timeout)
    return False


def _is_done(call: Future[Any], timeout: float) -> bool:
    """Wait for a call for at most `timeout` seconds. Return whether it has returned or raised."""
    return bool(wait([call], timeout).done)


def _call(future: Future[Any], function: Callable[..., Any], keys: pa.RecordBatch) -> None:
    try:
        result = call_user(function, keys)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _raiser(error: BaseException, function: Callable[..., Any]) -> Callable[[], None]:
    """Return a function that raises the error under the name of the user's function."""

    def raiser() -> None:
        raise error

    raiser.__qualname__ = function_name(function)
    return raiser


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, and cancel the calls that still run."""
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
