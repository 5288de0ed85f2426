"""`Attempt`: one deployment of a job's tasks. It starts the TaskManagers, follows them, and ends them.

Every event arrives on the same queue, and the same thread handles all events. So all events have one order.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import time
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, Final, Protocol

from headgate.config import Config
from headgate.errors import HeadgateError, TaskManagerLost, from_wire, printable
from headgate.plan.execution import ExecutionPlan
from headgate.protocol.handshake import CONTROL_LINK, Credentials
from headgate.runtime.control_messages import (
    OF_DRIVER,
    AllFinished,
    Cancel,
    Close,
    Failed,
    FromDriver,
    FromTaskManager,
    Printed,
    Ready,
    Registered,
    ReportCheckpointMetrics,
    ReportMetrics,
    StartTasks,
    Stuck,
    ToJob,
)
from headgate.runtime.deployment import Deployment, Gang, Plan, TaskManagerSpec
from headgate.runtime.master.job_metrics import Metrics
from headgate.runtime.master.member import Member
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.transport.control_link import CLOSED, ControlLink
from headgate.transport.link_socket import CONNECTION_CLOSED
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Server, is_on_loopback, listen, reached_at

log = logging.getLogger(__name__)

#: Seconds from the driver's last message until the platform uses force. TaskManagers wait 2 s for their tasks to end.
END_TIMEOUT = 3.0
#: Seconds in which TaskManagers of a failed job must end once they have closed their links.
LEAVE_TIMEOUT = 1.0
#: Seconds from the driver's last message until the attempt stops waiting, even for the effect of force. Spark takes up
#: to 4 s to kill.
OVER_TIMEOUT = 4.0
#: The least seconds to wait for the effect of force.
FORCE_TIMEOUT = 0.5
#: Seconds from the first report of a loss until the attempt stops waiting for anything, even if the timeouts above
#: allow more.
LOSS_TIMEOUT = 4.5
#: Seconds to wait for the platform's reason, once a TaskManager's connection is closed. An exit code comes at once.
#: Spark takes up to a second to report the loss of an executor.
EXIT_WORD = 1.5
#: Seconds to wait for a lost TaskManager's own error, once the platform has given its reason.
LAST_WORDS = 0.4
#: Seconds between two checks whether the TaskManagers have ended, after they were ordered to end.
_GANG_POLL = 0.02
_NETWORK_TIMEOUT = 2.0
#: The most characters of the host name that a TaskManager reports, as in DNS.
_LONGEST_HOST = 253


class _LossSource(Enum):
    """The source of a report that a TaskManager was lost. A source with a higher value knows more about the reason."""

    NONE = 0
    CUT = 1  # a TaskManager whose data link was cut
    PEER = 2  # a TaskManager that has closed a data link, and says why
    LINK = 3  # the driver's own link
    EXIT = 4  # the platform


#: How a reason begins that says no more than that a connection has ended.
_CUT: Final = ("[Errno", CLOSED, CONNECTION_CLOSED)


class Job(Protocol):
    """The interface by which an attempt calls its job, a `JobMaster`. The attempt's thread calls all methods."""

    web_url: str | None

    def start_tasks(self) -> float:
        """Record that all tasks run now. Returns the start time of the first attempt's tasks, as in `time.time()`."""

    def on_message(self, member: Member, message: ToJob, payload: bytes) -> None:
        """Handle a TaskManager's report on its tasks."""

    def on_end_of_tasks(self) -> None:
        """Handle the end of all tasks. The job later calls `Attempt.over` to end the attempt.

        If the method raises HeadgateError, the attempt fails with this error.
        """

    def deadline(self) -> float | None:
        """Return the time for the next `on_time`, in seconds of the monotonic clock; None means never."""

    def on_time(self, now: float) -> None: ...


class Attempt:
    """One attempt to run a job. Call `launch`, then `run`.

    `run` returns when nothing of the attempt runs any more. From then on, `error` is the error that ended the attempt,
    or None after success. `checkpoint` and `restore` are as in `TaskManagerSpec`.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        *,
        plan: ExecutionPlan,
        config: Config,
        deployment: Deployment,
        credentials: Credentials,
        checkpoint: int,
        restore: CheckpointMetadata | None,
    ) -> None:
        self._job = job
        self._name = name
        self._plan = Plan(plan)
        self._config = config
        self._deployment = deployment
        self.credentials = credentials
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.members = [Member(index) for index in range(plan.taskmanagers)]
        #: The address of the driver's machine, as it is announced to the TaskManagers.
        self.host = ""
        self._network: NetworkThread
        self._gang: Gang
        self._start_by: float | None = None
        self._suspect: TaskManagerLost | None = None
        self._evidence = _LossSource.NONE
        self._suspected_at: float | None = None
        self._decide_by: float | None = None
        self._checkpoint = checkpoint
        self._restore = restore
        self._decided = False
        #: The message that says how the attempt ended. Every TaskManager gets it, also one that registers later.
        self._last_message: FromDriver | None = None
        self.error: HeadgateError | None = None

    # --- from any thread

    def post(self, event: Callable[[], None]) -> None:
        """Run `event` on the attempt's thread, unless the outcome is decided before that."""

        def unless_decided() -> None:
            if not self._decided:
                event()

        self._events.put(unless_decided)

    def end(self, error: HeadgateError) -> None:
        """End the attempt with this error, unless the outcome is decided already."""
        self._events.put(lambda: self._decide(error))

    def reports(self) -> list[Metrics]:
        """Return the last report of each TaskManager that has reported."""
        return [member.metrics for member in self.members if member.metrics is not None]

    @property
    def has_reported(self) -> bool:
        """Whether all TaskManagers have reported metrics since they restored their state."""
        return all(member.has_reported for member in self.members)

    @property
    def has_registered(self) -> bool:
        """Whether all TaskManagers have registered: they have started, and can reach the driver."""
        return all(member.address is not None for member in self.members)

    # --- the beginning

    def launch(self) -> None:
        """Start the TaskManagers. Raises HeadgateError; in that case no TaskManager is left."""
        host = self._deployment.bind_hosts()
        bind_host = self._config.bind_host
        sock = listen(bind_host or host, self._config.port_range)
        self._network = NetworkThread(f"driver-{self._name}-{self.credentials.attempt}", self._on_network_error)
        self._network.start()
        try:
            self.host = reached_at(bind_host, host)
            self._start_gang(sock)
        except BaseException:  # an interrupt, too
            self._network.stop(_NETWORK_TIMEOUT)  # TaskManagers end when they lose their driver
            raise

    def _start_gang(self, sock: Any) -> None:
        ours, theirs = self._issue_identities(sock)
        server = Server(self._network, sock, ours, CONTROL_LINK, self._accepted)
        server.start()
        spec = TaskManagerSpec(
            job=self._name,
            plan=self._plan,
            config=self._config.without_web(),
            credentials=theirs,
            control_address=(self.host, server.port),
            checkpoint=self._checkpoint,
            restore=self._restore,
            page=self._job.web_url,
        )
        # The free slots were counted before. Unless another Spark job takes them, only Python processes must start.
        self._start_by = time.monotonic() + self._config.registration_timeout
        self._gang = self._deployment.launch(spec, len(self.members), self._on_exit)

    def _issue_identities(self, sock: Any) -> tuple[Credentials, Credentials]:
        """Return the credentials of the driver and the TaskManagers, with TLS identities if links are encrypted."""
        tls = self._config.tls
        if tls == "off" or (tls == "auto" and is_on_loopback(sock)):
            return self.credentials, self.credentials
        from headgate.runtime.master import certificates  # jobs on loopback need no cryptography

        driver, taskmanager = certificates.issue()
        self.credentials = dataclasses.replace(self.credentials, identity=driver)
        return self.credentials, dataclasses.replace(self.credentials, identity=taskmanager)

    # --- events, posted by other threads

    def _accepted(self, sock: Any, index: int) -> None:
        """On the network thread, start the control link of a TaskManager that has authenticated itself."""
        if index >= len(self.members) or self.members[index].link is not None:
            sock.close()
            return
        member = self.members[index]
        link = ControlLink(
            self._network,
            sock,
            heartbeat_timeout=self._config.heartbeat_timeout,
            codec=OF_DRIVER,
            on_message=lambda message, payload: self._events.put(lambda: self._on_message(member, message, payload)),
            on_lost=lambda reason: self._events.put(lambda: self._on_lost(member, reason)),
        )
        link.start()
        member.link = link
        self._events.put(lambda: self._send_last_message(member))

    def _on_network_error(self, error: Exception) -> None:
        self._events.put(lambda: self._decide(unexpected(error)))

    def _on_exit(self, index: int | None, reason: str) -> None:
        """Handle the platform's report that TaskManager `index` has ended; None means all. Any thread may call this."""
        self._events.put(lambda: self._exited(index, reason))

    # --- while the attempt runs, on the job's thread

    def run(self) -> None:
        """Follow the TaskManagers until all have ended."""
        while not self._decided:
            deadlines = (self._start_by, self._decide_by, self._job.deadline())
            self._next_event(min((at for at in deadlines if at is not None), default=None))
            if not self._decided:
                self._guarded(lambda: self._look_at_deadlines(time.monotonic()))
        self._end()

    def _next_event(self, deadline: float | None) -> None:
        """Handle one event, or return at the deadline without one."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return
        self._guarded(event)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run `work`. An error that it raises ends the attempt."""
        try:
            work()
        except HeadgateError as error:
            self._decide(error)
        except Exception as error:  # a bug of Headgate must end the job, not let it hang
            log.exception("error in the JobMaster")
            self._decide(unexpected(error))

    def _look_at_deadlines(self, now: float) -> None:
        self._job.on_time(now)
        if self._decide_by is not None and now >= self._decide_by:
            self._decide(self._suspect)
        elif self._start_by is not None and now >= self._start_by:
            missing = ", ".join(str(member) for member in self.members if member.address is None)
            limit = f"{self._config.registration_timeout:g} s (registration_timeout)"
            what = f"{missing} did not register within {limit} on {self._deployment.name}"
            why = self._gang.why_waiting() or (
                "it did not start in that time, or could not connect to the driver; check whether processor time and "
                "memory are left there"
            )
            self._decide(TaskManagerLost(f"{what}: {why}"))

    def _on_message(self, member: Member, message: FromTaskManager, payload: bytes) -> None:
        match message:
            case Registered():
                member.address = printable(message.host[:_LONGEST_HOST]), message.port
                member.pid = message.pid
                if self.has_registered:
                    self._start_by = None  # opening operators may take long: a lookup loads its table
            case Ready():
                member.ready = True
                if all(other.ready for other in self.members):
                    self._start_tasks()
            case Failed():
                self._on_failed(from_wire(message.error))
            case Stuck():
                member.stuck = [printable(operator) for operator in message.operators]
            case AllFinished():
                self._on_finished(member, message)
            case _:
                if isinstance(message, ReportMetrics):
                    member.metrics = message.metrics
                    member.has_reported = member.ready
                if not self._decided or isinstance(message, Printed | ReportMetrics | ReportCheckpointMetrics):
                    self._job.on_message(member, message, payload)

    def _start_tasks(self) -> None:
        at = self._job.start_tasks()
        addresses = [member.address for member in self.members if member.address is not None]
        self.send(StartTasks(addresses=addresses, started_at=at))

    def _on_failed(self, error: HeadgateError) -> None:
        """End the attempt, unless the TaskManager failed because it lost another TaskManager.

        The lost TaskManager may be about to report the cause itself.
        """
        if isinstance(error, TaskManagerLost):
            is_cut = error.message.partition(" was lost: ")[2].startswith(_CUT)
            self._suspect_lost(error, _LossSource.CUT if is_cut else _LossSource.PEER)
        else:
            self._decide(error)

    def _suspect_lost(self, error: TaskManagerLost, evidence: _LossSource) -> None:
        """Assume that this loss ends the attempt.

        For a short time, a source that knows more may replace the reason. Once all TaskManagers have finished, a loss
        does no harm.
        """
        if all(member.finished for member in self.members):
            return
        if evidence.value > self._evidence.value:
            self._suspect, self._evidence = error, evidence
            patience = LAST_WORDS if evidence is _LossSource.EXIT else EXIT_WORD
            now = time.monotonic()
            self._suspected_at = self._suspected_at or now
            self._decide_by = min(now + patience, self._suspected_at + EXIT_WORD + LAST_WORDS)

    def _on_lost(self, member: Member, reason: str) -> None:
        member.gone = True
        member.lost = not self._decided
        member.damage = "" if reason.startswith(_CUT) else f"{reason}; then "
        if not member.finished:
            self._suspect_lost(TaskManagerLost(f"{member} was lost: {reason}"), _LossSource.LINK)
        self._stop_waiting_for(member)

    def _exited(self, index: int | None, reason: str) -> None:
        if index is None:
            addition = f"; {self._deployment.name} says: {reason}" if reason else ""
            lost = self._suspect.message if self._suspect is not None else "the TaskManagers ended before the job did"
            self._suspect_lost(TaskManagerLost(lost + addition), _LossSource.EXIT)
            return
        member = self.members[index]
        member.exited = True
        lost = f"{member} was lost: {member.damage}{reason or 'it ended before the job did'}"
        self._suspect_lost(TaskManagerLost(lost), _LossSource.EXIT)
        self._stop_waiting_for(member)
        if self._decided and self.error is None and member.stuck:
            log.warning("job %r has ended well: the user function of %s did not return when it ended, so %s was killed",
                        self._name, ", ".join(member.stuck), member)  # fmt: skip
        elif self._decided and self.error is None and reason:
            log.warning("job %r has ended well, and its result stands, but %s did not: %s", self._name, member, reason)

    def _stop_waiting_for(self, member: Member) -> None:
        """Stop waiting for a better reason if the TaskManager has ended and its connection is closed.

        Such a TaskManager can send no message any more.
        """
        if member.gone and member.exited and self._decide_by is not None:
            self._decide_by = time.monotonic()

    def _on_finished(self, member: Member, message: AllFinished) -> None:
        member.finished = member.has_reported = True
        member.metrics = message.metrics
        if not self._decided and all(other.finished for other in self.members):
            self._job.on_end_of_tasks()

    # --- the end

    def over(self) -> None:
        """End the attempt successfully, whether its tasks have ended or not. Runs on the attempt's thread."""
        self._decide(None)

    def _decide(self, error: HeadgateError | None) -> None:
        """Decide the outcome. None means success. Only the first call counts."""
        if not self._decided:
            self._decided = True
            self.error = error.at(job=self._name) if error is not None else None

    def send(self, message: FromDriver, to: Collection[int] | None = None) -> None:
        """Send a message to the TaskManagers with these numbers; None: to all."""
        for member in self.members:
            if member.link is not None and not member.gone and (to is None or member.index in to):
                member.link.send(message)

    def _send_last_message(self, member: Member) -> None:
        if self._last_message is not None and member.link is not None:
            member.link.send(self._last_message)

    def _end(self) -> None:
        """Send all TaskManagers the outcome, and wait until they end. Then release everything.

        The platform uses force on TaskManagers that do not end.
        """
        self._last_message = Close() if self.error is None else Cancel()
        self.send(self._last_message)
        began = time.monotonic()
        over = began + OVER_TIMEOUT
        if self.error is not None and self._suspected_at is not None:
            over = min(over, self._suspected_at + LOSS_TIMEOUT)
        deadline = min(began + END_TIMEOUT, over - FORCE_TIMEOUT)
        while (unresponsive := self._still_linked()) and time.monotonic() < deadline:
            self._next_event(deadline)
        if not self._await_gang(self._time_before_force(unresponsive)):
            self._gang.cancel()
            self._await_gang(max(over - time.monotonic(), FORCE_TIMEOUT))
        self._network.stop(_NETWORK_TIMEOUT)
        self._handle_waiting_events()
        if self.error is not None:
            self._explain_end(self.error, unresponsive, deadline - began)

    def _still_linked(self) -> list[Member]:
        return [member for member in self.members if member.link is not None and not member.gone]

    def _time_before_force(self, unresponsive: list[Member]) -> float:
        """Return the seconds to wait before the platform uses force.

        There is no wait if TaskManagers are lost, do not respond or are still starting.
        """
        if self.error is None:
            return END_TIMEOUT
        has_left = not unresponsive and not any(member.link is None or member.lost for member in self.members)
        return LEAVE_TIMEOUT if has_left else 0.0

    def _await_gang(self, timeout: float) -> bool:
        """Wait until the TaskManagers have ended, at most `timeout` seconds. Returns whether they have.

        A TaskManager that connects meanwhile gets the last message.
        """
        deadline = time.monotonic() + timeout
        while not (ended := self._gang.join(_GANG_POLL)) and time.monotonic() < deadline:
            self._handle_waiting_events()
        return ended

    def _handle_waiting_events(self) -> None:
        while not self._events.empty():
            self._next_event(0.0)

    def _explain_end(self, error: HeadgateError, unresponsive: list[Member], waited: float) -> None:
        """Name in the error's text the functions and TaskManagers that did not end by themselves."""
        notes = []
        if stuck := self._stuck():
            left = "its process was killed" if self._gang.can_kill else "its daemon thread is left running"
            notes.append(f"the user function of {', '.join(stuck)} did not return when the job ended; {left}")
        elif unresponsive and self._gang.can_kill:
            names = ", ".join(map(str, unresponsive))
            notes.append(f"{names} did not end within {waited:.2g} s and was killed")
        error.message += "".join(f" ({note})" for note in notes)

    def _stuck(self) -> list[str]:
        return [operator for member in self.members for operator in member.stuck]

    @property
    def left_running(self) -> bool:
        """Whether a user's function did not return, in a thread that cannot be killed."""
        return bool(self._stuck()) and not self._gang.can_kill


def unexpected(error: Exception) -> HeadgateError:
    """Return the error that ends the job when a bug of Headgate raises `error`."""
    return HeadgateError(f"unexpected {type(error).__name__} in the JobMaster: {error}")
