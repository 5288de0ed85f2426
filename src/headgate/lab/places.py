"""The places where an experiment runs: two TaskManagers of two slots each, as local processes or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import headgate as hg
from headgate.lab.flows import Flow, Flows, by_target
from headgate.lab.probe import Probe
from headgate.spark.session import build_session

MASTER = "local-cluster[2,2,1024]"
TASKMANAGERS, SLOTS = 2, 2
PARALLELISM = TASKMANAGERS * SLOTS

#: Subtask i is in TaskManager i mod 2. So A.1 and A.2 share the first TaskManager, and B.3 and B.4 share the second.
A1, B3, A2, B4 = 0, 1, 2, 3

#: A function that makes an environment with the given options of `hg.Config`.
Place = Callable[[dict[str, Any]], hg.StreamEnvironment]

#: The options of each mode of flow control.
MODES: dict[str, dict[str, Any]] = {"credit": {}, "tcp": {"flow_control": "tcp"}}


def processes(options: dict[str, Any]) -> hg.StreamEnvironment:
    """Return an environment whose TaskManagers are processes of this machine."""
    deployment = hg.LocalDeployment(taskmanagers=TASKMANAGERS, processes=True)
    return hg.StreamEnvironment(parallelism=PARALLELISM, config=hg.Config(**options), deployment=deployment)


def warm_up() -> None:
    """Run a short job, so that the runs that follow start soon.

    The process that forks TaskManagers imports slow modules when it has been idle for a moment. If the first jobs
    start before, all of their TaskManagers import these modules while rows are already due.
    """
    flows = Flows({A1: Flow((B3,), 1000.0)}, 0.3)
    environment = processes({})
    environment.from_source(flows).partition_by(by_target).sink_to(Probe())
    environment.execute("warm-up")


@contextmanager
def spark() -> Iterator[Place]:
    """Yield a place whose TaskManagers are barrier tasks, one in each executor. Raises ConfigError without Spark."""
    session = build_session(MASTER, "headgate lab")

    def place(options: dict[str, Any]) -> hg.StreamEnvironment:
        config = hg.Config(slots_per_task=SLOTS, slots_timeout=60, **options)
        return hg.StreamEnvironment(session, parallelism=PARALLELISM, config=config)

    try:
        yield place
    finally:
        session.stop()
