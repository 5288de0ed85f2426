"""Run a task on a thread: call its turns one after the other, and wait between them."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from headgate.errors import HeadgateError, from_wire, to_wire
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.heads import END, MORE
from headgate.runtime.task.task import Task
from headgate.runtime.task.time_account import Wait
from headgate.runtime.task.timer_slack import remove_timer_slack
from headgate.runtime.task.turn_token import TokenUser, TurnToken, token_for_thread


def run_task(
    task: Task,
    done: Callable[[Task, HeadgateError | None], None],
    clocks: Clocks = SYSTEM,
    token: TurnToken | None = None,
) -> None:
    """Run the task on the calling thread, and close the task. Then call `done` with the task and its error, or None.

    Tasks with the same `token` compute one after the other. The default is `token_for_thread()`: the token of the
    process, or a token of its own if the thread may use only one core.
    """
    remove_timer_slack()
    task.thread.start()
    user = (token or token_for_thread()).user()
    task.on_wait = user.give_back
    error = _run_turns(task, clocks.monotonic, user)
    user.give_back()
    closing_error = task.close()
    task.thread.stop()
    error = error or closing_error
    if error is not None:
        error = from_wire(to_wire(error))  # a copy without frames: they may hold views into segments
    done(task, error)


def _run_turns(task: Task, clock: Callable[[], float], token: TokenUser) -> HeadgateError | None:
    until = MORE
    try:
        while until != END:
            if until != MORE:
                task.wait(until)
            if not token.take():
                work = task.times.switch(Wait.INTERPRETER)
                token.wait()
                task.times.switch(work)
            until = task.turn(clock())
    except HeadgateError as error:
        return error
    except BaseException as error:  # any exception must reach the driver
        text = "".join(traceback.format_exception(error)).rstrip()
        return HeadgateError(f"unexpected {type(error).__name__} in task {task.name}: {error}\n{text}")
    return None
