"""JobMaster: one job's life on the driver. It starts the TaskManagers, lets them run, and ends them, for whatever
reason.

Everything that happens arrives as an event on one queue and is handled by one thread, so there is one order of things.
"""

from __future__ import annotations

import enum
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from headgate.config import Config, FlowControl
from headgate.errors import ConfigError, HeadgateError, JobCancelled, TaskManagerLost, from_wire
from headgate.plan.execution import ExecutionPlan
from headgate.plan.stages import Stages
from headgate.protocol.handshake import CONTROL_LINK, Credentials
from headgate.records.events import Alignment
from headgate.runtime import console
from headgate.runtime.barriers import Part
from headgate.runtime.deployment import Deployment, Gang, Plan, TaskManagerSpec
from headgate.runtime.ends import Ends
from headgate.runtime.late_rows import LateRowWarnings
from headgate.runtime.measures import Metrics, merge
from headgate.transport.control_link import ControlLink, Message
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Server, listen, reached_at

log = logging.getLogger(__name__)

#: From the order to end to the moment when the platform is asked to use force. TaskManagers themselves give up at 2 s.
END_TIMEOUT = 3.0
#: How long TaskManagers of a failed job that have said goodbye may take to be gone.
LEAVE_TIMEOUT = 1.0
#: From the order to end until not even the effect of force is waited for: Spark takes up to four seconds to kill.
OVER_TIMEOUT = 4.0
#: What force is given at the least.
FORCE_TIMEOUT = 1.0
#: How long the platform's word on why a TaskManager is gone is waited for, once its connection is closed. An exit code
#: is there at once; Spark takes up to a second for an executor.
EXIT_WORD = 1.5
#: How long a lost TaskManager's own last words are waited for, once the platform has spoken.
LAST_WORDS = 0.4
#: How often to look whether the TaskManagers have ended, once they have been told to.
_GANG_POLL = 0.02
_NETWORK_TIMEOUT = 2.0


class JobState(enum.Enum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class _Evidence(enum.Enum):
    """Who says that a TaskManager is lost, in the order of what they know about the reason."""

    NONE = 0
    PEER = 1  # a TaskManager whose data link was cut
    LINK = 2  # the driver's own link
    EXIT = 3  # the platform


class _Member:
    """One TaskManager as the driver sees it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.link: ControlLink | None = None
        self.address: tuple[str, int] | None = None
        self.pid: int | None = None
        self.ready = False
        self.metrics: Metrics | None = None
        self.finished = False
        self.gone = False
        self.lost = False

    def __str__(self) -> str:
        if self.address is None:
            return f"TaskManager {self.index}"
        return f"TaskManager {self.index} (process {self.pid} on {self.address[0]})"


class JobMaster:
    """See the module. `ended` is set when nothing of the job runs any more; `error` is then None or what ended it."""

    def __init__(self, name: str, run: str, plan: ExecutionPlan, config: Config, deployment: Deployment) -> None:
        self._name = name
        self._run_id = run
        self._plan = plan
        self._config = config
        self._deployment = deployment
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._members = [_Member(index) for index in range(plan.taskmanagers)]
        self._ends = Ends(plan.job, run)
        self._stages = Stages(plan, batch=config.is_batch)
        self._late_rows = LateRowWarnings(plan.job)
        self._credentials = Credentials(os.urandom(16), 0, os.urandom(32), config.flow_control)
        self._network: NetworkThread
        self._gang: Gang
        self._start_by: float | None = None
        self._suspect: TaskManagerLost | None = None
        self._evidence = _Evidence.NONE
        self._decide_by: float | None = None
        self._stuck: list[str] = []
        self._decided = False
        #: What every TaskManager is told, also one that registers only now, once it is decided what the job came to.
        self._last_word: Message | None = None
        self._checkpoints = itertools.count(1)
        self._parts: dict[int, dict[str, Part]] = {}
        self._started_at = 0.0
        self.duration_s = 0.0
        self.state = JobState.CREATED
        self.error: HeadgateError | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"headgate-job-{run}", daemon=True)

    # --- from any thread

    def start(self) -> None:
        """Prepare sources and sinks on the caller's thread, then launch. Raises HeadgateError; then nothing is left
        behind."""
        self._ends.prepare()
        try:
            host = self._deployment.bind_hosts()
            bind_host = self._config.bind_host
            sock = listen(bind_host or host, self._config.port_range)
            self._network = NetworkThread(f"driver-{self._run_id}", self._on_network_error)
            self._network.start()
            try:
                self._launch(reached_at(bind_host, host), sock)
            except BaseException:  # an interrupt, too
                self._network.stop(_NETWORK_TIMEOUT)  # TaskManagers end when they lose their driver
                raise
        except BaseException:
            self._ends.abort()
            raise

    def _launch(self, host: str, sock: Any) -> None:
        server = Server(self._network, sock, self._credentials, CONTROL_LINK, self._accepted)
        server.start()
        spec = TaskManagerSpec(self._name, Plan(self._plan), self._config, self._credentials, (host, server.port))
        # Slots were counted before, so this covers starting Python processes only.
        self._start_by = time.monotonic() + self._config.registration_timeout
        self._gang = self._deployment.launch(spec, len(self._members), self._on_exit)
        self.thread.start()

    def cancel(self) -> None:
        self._events.put(lambda: self._decide(JobCancelled(f"job {self._name!r} was cancelled")))

    def inject_barrier(self, alignment: Alignment = Alignment.ALIGNED, timeout: float = 0.0) -> int:
        """Have every source send a checkpoint's barrier, from when the job runs on; `timeout` (seconds) is for
        Alignment.TIMEOUT. Returns the checkpoint's number, by which `checkpoint_parts` tells how far it has come.
        Nothing is stored. Raises ConfigError where the data plane knows no overtaking."""
        if alignment is not Alignment.ALIGNED and self._config.flow_control is not FlowControl.CREDIT:
            raise ConfigError(f"a barrier overtakes only under credit, and flow_control={self._config.flow_control}")
        checkpoint = next(self._checkpoints)
        self._events.put(lambda: self._inject(checkpoint, alignment, timeout))
        return checkpoint

    def _inject(self, checkpoint: int, alignment: Alignment, timeout: float) -> None:
        times = {"timestamp": round(time.time() * 1e6), "timeout": round(timeout * 1e6)}
        self._tell({"type": "barrier", "id": checkpoint, "alignment": int(alignment), **times})

    def checkpoint_parts(self, checkpoint: int) -> dict[str, Part]:
        """What tasks have told of a checkpoint so far, by task; see `TaskBarriers`."""
        return dict(self._parts.get(checkpoint, {}))

    def metrics(self) -> Metrics:
        """The last reports added up."""
        return merge([member.metrics for member in self._members if member.metrics is not None])

    # --- events, posted by other threads

    def _accepted(self, sock: Any, index: int) -> None:
        """On the network thread: a TaskManager has dialled and proved itself."""
        if index >= len(self._members) or self._members[index].link is not None:
            sock.close()
            return
        member = self._members[index]
        link = ControlLink(
            self._network,
            sock,
            self._config.heartbeat_timeout,
            lambda message, payload: self._events.put(lambda: self._on_message(member, message, payload)),
            lambda reason: self._events.put(lambda: self._on_lost(member, reason)),
        )
        link.start()
        member.link = link
        self._events.put(lambda: self._tell_last_word(member))

    def _on_network_error(self, error: Exception) -> None:
        self._events.put(lambda: self._decide(_unexpected(error)))

    def _on_exit(self, index: int | None, reason: str) -> None:
        """Any thread: the platform says that TaskManagers have ended."""
        self._events.put(lambda: self._exited(index, reason))

    # --- the life of the job, on its own thread

    def _run(self) -> None:
        try:
            while not self._decided:
                deadlines = [at for at in (self._start_by, self._decide_by) if at is not None]
                self._next_event(min(deadlines, default=None))
                self._look_at_deadlines(time.monotonic())
            self._end()
        finally:
            self.ended.set()

    def _next_event(self, deadline: float | None) -> None:
        """Handle one event; return without one at the deadline."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return
        try:
            event()
        except HeadgateError as error:
            self._decide(error)
        except Exception as error:  # a bug of ours must end the job, not hang it
            log.exception("error in the JobMaster")
            self._decide(_unexpected(error))

    def _look_at_deadlines(self, now: float) -> None:
        if self._decide_by is not None and now >= self._decide_by:
            self._decide(self._suspect)
        elif self._start_by is not None and now >= self._start_by:
            missing = ", ".join(str(member) for member in self._members if member.address is None)
            limit = f"{self._config.registration_timeout:g} s (registration_timeout)"
            what = f"{missing} did not register within {limit} on {self._deployment.name}"
            why = "not started in that time, or unable to connect to the driver"
            self._decide(TaskManagerLost(f"{what}: {why}; see whether it has processor time and memory left there"))

    def _on_message(self, member: _Member, message: Message, payload: bytes) -> None:
        match message["type"]:
            case "registered":
                member.address = str(message["host"]), int(message["port"])
                member.pid = int(message["pid"])
                if all(other.address is not None for other in self._members):
                    self._start_by = None  # opening operators may take long: a lookup loads its table
            case "ready":
                member.ready = True
                if all(other.ready for other in self._members):
                    self._start_tasks()
            case "metrics":
                member.metrics = message["metrics"]
                self._late_rows.look(self.metrics, ended=False)
            case "checkpoint":
                part = message["part"]
                self._parts.setdefault(int(part["checkpoint"]), {})[str(part["task"])] = part
            case "deliver":
                self._deliver(member, message, payload)
            case "print":
                console.show(message)
            case "failed":
                self._on_failed(from_wire(message["error"]))
            case "stuck":
                self._stuck += [str(operator) for operator in message["operators"]]
            case "task finished":
                vertices = self._stages.finished(int(message["vertex"]))
                if vertices:
                    self._tell({"type": "run", "vertices": vertices})
            case "finished":
                self._on_finished(member, message)

    def _start_tasks(self) -> None:
        self.state = JobState.RUNNING
        self._started_at = time.time()
        addresses = [member.address for member in self._members]
        self._tell({"type": "start", "addresses": addresses, "started_at": self._started_at})

    def _deliver(self, member: _Member, message: Message, payload: bytes) -> None:
        if not self._decided:
            self._ends.deliver(int(message["node"]), payload)
        if member.link is not None:
            member.link.send({"type": "delivered", "bytes": message["bytes"]})

    def _on_failed(self, error: HeadgateError) -> None:
        """A TaskManager failed. That it lost a peer may be the consequence of what the peer is about to say itself."""
        if isinstance(error, TaskManagerLost):
            self._suspect_lost(error, _Evidence.PEER)
        else:
            self._decide(error)

    def _suspect_lost(self, error: TaskManagerLost, evidence: _Evidence) -> None:
        """This ended the job, unless something that says more comes at once."""
        if evidence.value > self._evidence.value:
            self._suspect, self._evidence = error, evidence
            patience = LAST_WORDS if evidence is _Evidence.EXIT else EXIT_WORD
            self._decide_by = time.monotonic() + patience

    def _on_lost(self, member: _Member, reason: str) -> None:
        member.gone = True
        member.lost = not self._decided
        if not member.finished:
            self._suspect_lost(TaskManagerLost(f"{member} was lost: {reason}"), _Evidence.LINK)

    def _exited(self, index: int | None, reason: str) -> None:
        if index is None:
            said = f"; {self._deployment.name} says: {reason}" if reason else ""
            lost = self._suspect.message if self._suspect is not None else "the TaskManagers ended before the job did"
            self._suspect_lost(TaskManagerLost(lost + said), _Evidence.EXIT)
            return
        member = self._members[index]
        lost = f"{member} was lost: {reason or 'it ended before the job did'}"
        self._suspect_lost(TaskManagerLost(lost), _Evidence.EXIT)
        if self._decided and self.error is None and reason:
            log.error("%s did not end well: %s", member, reason)

    def _on_finished(self, member: _Member, message: Message) -> None:
        member.finished = True
        member.metrics = message["metrics"]
        for item in message["pending"]:
            self._ends.add_pending(int(item["node"]), item["pending"])
        if not self._decided and all(other.finished for other in self._members):
            self._ends.commit()
            self.duration_s = time.time() - self._started_at
            self._decide(None)

    # --- the end

    def _decide(self, error: HeadgateError | None) -> None:
        """What the job came to; the first word counts."""
        if not self._decided:
            self._decided = True
            self.error = error.at(job=self._name) if error is not None else None

    def _tell(self, message: Message) -> None:
        for member in self._members:
            if member.link is not None and not member.gone:
                member.link.send(message)

    def _tell_last_word(self, member: _Member) -> None:
        if self._last_word is not None and member.link is not None:
            member.link.send(self._last_word)

    def _end(self) -> None:
        """Tell all TaskManagers, wait for them, use force where that does not help, and let go of everything."""
        self._last_word = {"type": "close" if self.error is None else "cancel"}
        self._tell(self._last_word)
        began = time.monotonic()
        deadline = began + END_TIMEOUT
        while (deaf := self._still_linked()) and time.monotonic() < deadline:
            self._next_event(deadline)
        if not self._await_gang(self._patience(deaf)):
            self._gang.cancel()
            self._await_gang(max(began + OVER_TIMEOUT - time.monotonic(), FORCE_TIMEOUT))
        self._network.stop(_NETWORK_TIMEOUT)
        self._handle_waiting_events()
        self._late_rows.look(self.metrics, ended=True)
        if self.error is not None:
            self._explain_end(self.error, deaf)
        for problem in self._ends.release():
            log.warning("job %r: %s", self._name, problem)
        self.state = _STATES.get(type(self.error), JobState.FAILED)

    def _still_linked(self) -> list[_Member]:
        return [member for member in self._members if member.link is not None and not member.gone]

    def _patience(self, deaf: list[_Member]) -> float:
        """How long to wait before force; for those that are lost, do not listen or are still starting not at all."""
        if self.error is None:
            return END_TIMEOUT
        has_left = not deaf and not any(member.link is None or member.lost for member in self._members)
        return LEAVE_TIMEOUT if has_left else 0.0

    def _await_gang(self, timeout: float) -> bool:
        """TaskManagers that dial only now hear the last word meanwhile."""
        deadline = time.monotonic() + timeout
        while not (ended := self._gang.join(_GANG_POLL)) and time.monotonic() < deadline:
            self._handle_waiting_events()
        return ended

    def _handle_waiting_events(self) -> None:
        while not self._events.empty():
            self._next_event(0.0)

    def _explain_end(self, error: HeadgateError, deaf: list[_Member]) -> None:
        """Take back the sinks' results, and add to the error what did not end by itself."""
        notes = []
        if self._stuck:
            left = "its process was killed" if self._gang.can_kill else "its daemon thread is left running"
            notes.append(f"the user function of {', '.join(self._stuck)} did not return when the job ended; {left}")
        elif deaf and self._gang.can_kill:
            names = ", ".join(map(str, deaf))
            notes.append(f"{names} did not end within {END_TIMEOUT:g} s and was killed")
        error.message += "".join(f" ({note})" for note in [*notes, *self._ends.abort()])


def _unexpected(error: Exception) -> HeadgateError:
    return HeadgateError(f"unexpected {type(error).__name__} in the JobMaster: {error}")


_STATES = {type(None): JobState.FINISHED, JobCancelled: JobState.CANCELLED}
