"""Processes killed, stopped and interrupted at any moment of a job's life: always the same kind of end, in time.

The seed is in the test's name, so what is found can be run again.
"""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

import headgate as hg
from tests.ending import END, within
from tests.runtime.jobs import endless, environment, error_of, keyed, pids

pytestmark = pytest.mark.alone

#: A process that is stopped before it registers is given up after this, one that is stopped later after the heartbeat.
REGISTRATION, HEARTBEAT = 10.0, 3.0


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(6))
def test_at_a_random_moment(seed: int) -> None:
    strike(random.Random(seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_two_hundred_times(seed: int) -> None:
    strike(random.Random(seed))


def strike(chance: random.Random) -> None:
    count = chance.choice([1, 2, 3])
    patience = {"registration_timeout": REGISTRATION, "heartbeat_timeout": HEARTBEAT}
    env = environment(True, count, 3, segment_size=chance.choice([512, 32 << 10]), **patience)
    stream = endless(env)
    keyed(stream).sink_to(hg.sinks.null())
    stream.rebalance().union(stream.filter("n % 2 = 0")).sink_to(hg.sinks.null())
    job = env.execute_async()
    threading.Event().wait(chance.random() * chance.choice([0.3, 2.5]))
    how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, None])
    alive = list(pids().values())
    victims = [] if how is None or not alive else chance.sample(alive, chance.randint(1, len(alive)))
    with within(END + (REGISTRATION if how is signal.SIGSTOP else 0)):
        for pid in victims:
            os.kill(pid, how or 0)
        if not victims:
            job.cancel()
        error = error_of(job)
    if not victims:
        assert type(error) is hg.JobCancelled
        return
    assert type(error) is hg.TaskManagerLost
    reasons = ["no heartbeat", "did not register"] if how is signal.SIGSTOP else [f"killed by {how and how.name}"]
    if how is signal.SIGINT:  # in the midst of its imports a process ends with a library's ImportError
        reasons.append("ended with exit code 1")
    assert any(reason in error.message for reason in reasons), error.message
