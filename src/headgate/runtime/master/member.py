"""`Member`: one TaskManager of an attempt, as the driver knows it."""

from __future__ import annotations

from headgate.runtime.master.job_metrics import Metrics
from headgate.transport.control_link import ControlLink


class Member:
    """The driver's record of one TaskManager: its link, its last report, and whether it has ended."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.link: ControlLink | None = None
        self.address: tuple[str, int] | None = None
        self.pid: int | None = None
        #: Whether all operators of its first tasks are open.
        self.ready = False
        self.metrics: Metrics | None = None
        #: Whether it has reported metrics since it was ready.
        self.has_reported = False
        #: Whether all its tasks have ended without an error.
        self.finished = False
        #: Whether its link is closed.
        self.gone = False
        #: Whether the platform has reported its end.
        self.exited = False
        #: Whether its link closed before the attempt's outcome was decided.
        self.lost = False
        #: The operators whose functions did not return when the job ended.
        self.stuck: list[str] = []
        #: Why the driver closed the link, if it did: a damaged message, or no heartbeat.
        self.damage = ""

    def __str__(self) -> str:
        if self.address is None:
            return f"TaskManager {self.index}"
        return f"TaskManager {self.index} (process {self.pid} on {self.address[0]})"
