"""`StreamSink`, and the settings of operators that streams and sinks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from headgate.api.checks import check_label, check_parallelism
from headgate.api.job_builder import JobBuilder
from headgate.other_names import OtherNames


class LastOperator(OtherNames, ABC):
    """A stream or sink of a plan. Its calls change its last operator."""

    _jobs: JobBuilder

    @abstractmethod
    def _last(self, call: str) -> int:
        """Return the id of the last operator's node."""

    def name(self, name: str) -> Self:
        """Name the operator, for metrics, errors and `explain`. A second operator with the same name becomes `name#2`.

        >>> long_trips = trips.filter("km > 4").name("long trips")
        """
        self._jobs.graph.change(self._last("name"), name=check_label("name", name))
        return self

    def uid(self, uid: str) -> Self:
        """Give the operator an identity for checkpoints, so that a changed pipeline still finds the operator's state.
        Two operators of a job cannot have the same uid.

        >>> long_trips = trips.filter("km > 4").uid("long-trips")
        """
        self._jobs.graph.change(self._last("uid"), uid=check_label("uid", uid))
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of the operator's subtasks. The default is the environment's parallelism.

        >>> long_trips = trips.filter("km > 4").set_parallelism(4)
        """
        node_id = self._last("set_parallelism")
        most = self._jobs.config.max_parallelism
        checked = check_parallelism(f"set_parallelism of {self._jobs.graph[node_id].name!r}", parallelism, most)
        self._jobs.graph.change(node_id, parallelism=checked)
        return self

    def disable_chaining(self) -> Self:
        """Run the operator in a task of its own. Otherwise it may share a task with the operators before and after it.

        >>> long_trips = trips.filter("km > 4").disable_chaining()
        """
        self._jobs.graph.change(self._last("disable_chaining"), chaining=False)
        return self


class StreamSink(LastOperator):
    """A sink in the plan. `env.execute()` runs it.

    >>> env = hg.StreamEnvironment()
    >>> trips = env.from_source(hg.sources.iterable([[{"city": "Rome", "km": 7}]]))
    >>> sink = trips.sink_to(hg.sinks.printer()).name("screen").set_parallelism(1)
    """

    def __init__(self, program: JobBuilder, node_id: int) -> None:
        self._jobs = program
        self._node_id = node_id

    def _last(self, call: str) -> int:
        return self._node_id
