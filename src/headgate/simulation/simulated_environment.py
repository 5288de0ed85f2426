"""A stream environment whose jobs run in virtual time."""

from __future__ import annotations

import math

from headgate.api.environment import StreamEnvironment
from headgate.config import Config
from headgate.errors import ConfigError, PlanError
from headgate.runtime.launch.local import LocalDeployment
from headgate.runtime.master.job import JobHandle
from headgate.simulation.costs import Costs, Line
from headgate.simulation.simulated_job import SimulatedJob, SimulatedResult, Watch
from headgate.throttle.validation import number_or_nan, whole_number


class SimulatedEnvironment(StreamEnvironment):
    """Builds the same pipelines as `StreamEnvironment`, and runs them in virtual time, in this thread.

    The tasks, pools, partitions, credit and links are the runtime's own. Only their threads, clocks and sockets are
    virtual. How long the work takes comes from `costs`, and what the network carries comes from `line`. A job that is
    not over after `seconds` of virtual time is stopped. Sources must take their time from `ReaderContext.clock`, as
    `generate` does, and must have no thread of their own. There are no checkpoints and no restarts.

    >>> from headgate.simulation.costs import Costs
    >>> environment = SimulatedEnvironment(parallelism=2, taskmanagers=2, costs=Costs(rows={"null": 0.001}))
    >>> rows = [{"n": number} for number in range(1000)]
    >>> sink = environment.from_source(hg.sources.iterable([rows])).rebalance().sink_to(hg.sinks.null())
    >>> result = environment.execute()
    >>> result.rows_out, 0.9 < result.duration_s < 1.2
    (1000, True)
    """

    def __init__(
        self,
        *,
        parallelism: int = 1,
        config: Config | None = None,
        taskmanagers: int = 1,
        seed: int = 0,
        costs: Costs | None = None,
        line: Line | None = None,
        seconds: float = math.inf,
        watch: Watch | None = None,
    ) -> None:
        whole_number("taskmanagers", taskmanagers, least=1)
        if not number_or_nan(seconds) > 0:
            raise ConfigError(f"SimulatedEnvironment: seconds={seconds!r} must be a number above 0")
        super().__init__(parallelism=parallelism, config=config, deployment=LocalDeployment(taskmanagers=taskmanagers))
        self._taskmanagers = taskmanagers
        self._seed = seed
        self._costs = costs
        self._line = line
        self._seconds = seconds
        #: The `Watch` that gets the counters of the next jobs, or None.
        self.watch = watch

    def execute(
        self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False
    ) -> SimulatedResult:
        """Run the sinks that were added since the last run, in virtual time. Raises the first error of a task."""
        if resume is not None:
            raise PlanError("a simulated job has no checkpoints: it cannot resume")
        if not self._jobs.pending:
            raise PlanError("nothing to run: no sink was added since the last run; end a stream with sink_to(...)")
        sinks, self._jobs.pending = self._jobs.pending, []
        job = SimulatedJob(
            name,
            self._jobs.planned(sinks),
            self.config,
            taskmanagers=self._taskmanagers,
            seed=self._seed,
            costs=self._costs,
            line=self._line,
        )
        return job.run(self._seconds, self.watch)

    def execute_async(
        self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False
    ) -> JobHandle:
        """Raise PlanError: a simulated job runs within `execute`."""
        raise PlanError("a simulated job runs within execute(): there is no other thread that could run it")
