"""JobMaster: one job's life on the driver. It starts the TaskManagers, lets them run, and ends them, for whatever
reason.

Everything that happens arrives as an event on one queue and is handled by one thread, so there is one order of things.
"""

from __future__ import annotations

import enum
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headgate.config import Config
from headgate.connectors.base import Sink
from headgate.errors import HeadgateError, JobCancelled, SinkError, TaskManagerLost, from_wire
from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import Node
from headgate.protocol.handshake import CONTROL_LINK, Credentials
from headgate.records.arrow import plain_schema
from headgate.runtime.deployment import Deployment, Gang, Plan, TaskManagerSpec
from headgate.runtime.measures import Metrics, merge
from headgate.transport.control_link import ControlLink, Message
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Server, listen

#: From launch to the last registration. Slots were counted before, so this covers starting Python processes only.
START_TIMEOUT = 60.0
#: From the order to end to the moment when the platform is asked to use force. TaskManagers themselves give up at 2 s.
END_TIMEOUT = 3.0
#: How long a lost TaskManager's own last words, or its exit code, are waited for: they say more than a closed
#: connection.
LAST_WORDS = 0.4


class JobState(enum.Enum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


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
        self._sinks = {node.id: node for vertex in plan.job.vertices for node in vertex.nodes if node.sink is not None}
        self._pending: dict[int, list[Any]] = {node: [] for node in self._sinks}
        self._network = NetworkThread(f"driver-{run}")
        self._credentials = Credentials(os.urandom(16), 0, os.urandom(32))
        self._gang: Gang | None = None
        self._server: Server | None = None
        self._deadline: float | None = None
        self._suspect: TaskManagerLost | None = None
        self._stuck: list[str] = []
        self._decided = False
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
        prepared: list[Sink] = []
        try:
            for vertex in self._plan.job.vertices:
                for node in vertex.nodes:
                    self._prepare(node, prepared)
            sock = listen(self._config.bind_host or self._deployment.bind_hosts(), self._config.port_range)
        except BaseException:
            for sink in prepared:
                sink.abort()
            raise
        self._server = Server(self._network, sock, self._credentials, CONTROL_LINK, self._accepted)
        self._network.start()
        self._server.start()
        address = (self._deployment.bind_hosts(), self._server.port)
        spec = TaskManagerSpec(self._name, Plan(self._plan), self._config, self._credentials, address)
        self._deadline = time.monotonic() + START_TIMEOUT
        try:
            self._gang = self._deployment.launch(spec, len(self._members), self._on_exit)
        except BaseException:
            self._network.stop(2.0)
            for sink in prepared:
                sink.abort()
            raise
        self.thread.start()

    def _prepare(self, node: Node, prepared: list[Sink]) -> None:
        try:
            if node.source is not None:
                node.source.prepare()
            if node.sink is not None:
                node.sink.prepare(f"{self._run_id}-{node.id}", node.schema)
                prepared.append(node.sink)
        except HeadgateError as error:
            raise error.at(operator=node.name) from None

    def cancel(self) -> None:
        self._events.put(lambda: self._decide(JobCancelled(f"job {self._name!r} was cancelled")))

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
        member.link = link = ControlLink(
            self._network,
            sock,
            self._config.heartbeat_timeout,
            lambda message, payload: self._events.put(lambda: self._on_message(member, message, payload)),
            lambda reason: self._events.put(lambda: self._on_lost(member, reason)),
        )
        link.start()

    def _on_exit(self, index: int | None, reason: str) -> None:
        """Any thread: the platform says that TaskManagers have ended."""
        self._events.put(lambda: self._exited(index, reason))

    # --- the life of the job, on its own thread

    def _run(self) -> None:
        try:
            while not self._decided:
                self._next_event(self._deadline)
        except Exception as error:  # a bug of ours must end the job, not hang it
            self._decide(HeadgateError(f"unexpected {type(error).__name__} in the JobMaster: {error}"))
        try:
            self._end()
        finally:
            self.ended.set()

    def _next_event(self, deadline: float | None) -> None:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            self._on_deadline()
            return
        event()

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._suspect is not None:
            self._decide(self._suspect)
        elif self.state is JobState.CREATED:
            missing = ", ".join(str(member) for member in self._members if member.address is None)
            self._decide(
                TaskManagerLost(f"{missing} did not register within {START_TIMEOUT:g} s on {self._deployment.name}")
            )

    def _on_message(self, member: _Member, message: Message, payload: bytes) -> None:
        match message["type"]:
            case "registered":
                member.address = str(message["host"]), int(message["port"])
                member.pid = int(message["pid"])
                if all(other.address is not None for other in self._members):
                    self._deadline = None  # opening operators may take long: a lookup loads its table
            case "ready":
                member.ready = True
                if all(other.ready for other in self._members):
                    self._start_tasks()
            case "metrics":
                member.metrics = message["metrics"]
            case "deliver":
                self._deliver(member, message, payload)
            case "failed":
                self._on_failed(from_wire(message["error"]))
            case "stuck":
                self._stuck += [str(operator) for operator in message["operators"]]
            case "finished":
                self._on_finished(member, message)

    def _start_tasks(self) -> None:
        self.state = JobState.RUNNING
        self._deadline = None
        self._started_at = time.time()
        addresses = [member.address for member in self._members]
        self._tell({"type": "start", "addresses": addresses, "started_at": self._started_at})

    def _deliver(self, member: _Member, message: Message, payload: bytes) -> None:
        node = self._sinks[int(message["node"])]
        assert node.sink is not None and member.link is not None
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), plain_schema(node.schema))
        batch.validate(full=True)
        try:
            node.sink.deliver(batch)
        except HeadgateError as error:
            self._decide(error.at(operator=node.name))
        member.link.send({"type": "delivered", "bytes": message["bytes"]})

    def _on_failed(self, error: HeadgateError) -> None:
        """A TaskManager failed. That it lost a peer may be the consequence of what the peer is about to say itself."""
        if isinstance(error, TaskManagerLost):
            self._suspect_lost(error)
        else:
            self._decide(error)

    def _suspect_lost(self, error: TaskManagerLost) -> None:
        if self._suspect is None:
            self._suspect = error
            self._deadline = time.monotonic() + LAST_WORDS

    def _on_lost(self, member: _Member, reason: str) -> None:
        member.gone = True
        if not self._decided and not member.finished:
            self._suspect = None
            self._suspect_lost(TaskManagerLost(f"{member} was lost: {reason}"))

    def _exited(self, index: int | None, reason: str) -> None:
        for member in self._members if index is None else [self._members[index]]:
            was_connected = member.link is not None and not member.gone
            if not was_connected:
                member.gone = True
            if not self._decided and index is not None:
                self._suspect = None
                self._suspect_lost(TaskManagerLost(f"{member} was lost: {reason or 'it ended before the job did'}"))
        if not self._decided and index is None:
            said = f"; {self._deployment.name} says: {reason}" if reason else ""
            lost = self._suspect.message if self._suspect is not None else "the TaskManagers ended before the job did"
            self._suspect = None
            self._suspect_lost(TaskManagerLost(lost + said))

    def _on_finished(self, member: _Member, message: Message) -> None:
        member.finished = True
        member.metrics = message["metrics"]
        for item in message["pending"]:
            self._pending[int(item["node"])].append(item["pending"])
        if all(other.finished for other in self._members):
            self._commit()

    def _commit(self) -> None:
        for node_id, node in self._sinks.items():
            assert node.sink is not None
            try:
                node.sink.commit(self._pending[node_id])
            except HeadgateError as error:
                self._decide(error.at(operator=node.name))
                return
            except Exception as error:
                self._decide(SinkError(f"commit failed: {error}").at(operator=node.name))
                return
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

    def _end(self) -> None:
        """Tell all TaskManagers, wait for them, use force where that does not help, and let go of everything."""
        self._tell({"type": "close" if self.error is None else "cancel"})
        deadline = time.monotonic() + END_TIMEOUT
        while not all(member.gone for member in self._members) and time.monotonic() < deadline:
            if all(member.link is None for member in self._members):
                break
            self._next_event(deadline)
        assert self._gang is not None
        if self.error is not None:
            self._gang.cancel()
        if not self._gang.join(END_TIMEOUT):
            self._gang.cancel()
            self._gang.join(END_TIMEOUT)
        self._drain_events()
        self._network.stop(2.0)
        if self.error is not None:
            self._abort()
        self.state = {type(None): JobState.FINISHED, JobCancelled: JobState.CANCELLED}.get(
            type(self.error), JobState.FAILED
        )

    def _drain_events(self) -> None:
        """Last words that came while the gang was being ended."""
        while not self._events.empty():
            self._next_event(0.0)

    def _abort(self) -> None:
        assert self.error is not None
        if self._stuck:
            left = (
                "its process was killed"
                if self._gang is not None and self._gang.can_kill
                else "its daemon thread is left running"
            )
            who = ", ".join(self._stuck)
            self.error.message += f" (the user function of {who} did not return when the job ended; {left})"
        for node in self._sinks.values():
            try:
                assert node.sink is not None
                node.sink.abort()
            except Exception as error:
                self.error.message += f" (and sink {node.name} could not clean up: {error})"
