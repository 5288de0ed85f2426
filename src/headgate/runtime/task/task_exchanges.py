"""The exchanges of one task: the writers of its outputs, and the gates and channels of its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from headgate.config import FlowControl
from headgate.exchange.channels import InputChannel, RemoteInputChannel
from headgate.exchange.due import DueOutput
from headgate.exchange.gate import InputGate
from headgate.exchange.gathering import Gathering
from headgate.exchange.partition import ResultPartition
from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import OperatorContext
from headgate.plan.job_graph import JobEdge, JobVertex
from headgate.records.arrow import BatchCodec
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.exchange_parts import ExchangeParts, GateChannels
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.routing import selector_of
from headgate.runtime.task.task import TaskMail
from headgate.runtime.task.task_manager_services import TaskManagerServices
from headgate.runtime.task.throttling import Gated
from headgate.transport.data_link import ConsumerEnd

#: How many messages of a few narrow rows a task processes at once, if they have arrived.
_JOINED_MESSAGES: Final = 8


@dataclass(frozen=True, slots=True)
class BuiltOutput:
    """The writer of one exchange, named `operator -> operator`, and the consumer subtask of each subpartition."""

    name: str
    writer: RecordWriter
    consumers: Sequence[int]


@dataclass(frozen=True, slots=True)
class BuiltInput:
    """The channels of one exchange, named `operator -> operator`, and the producer subtask of each channel."""

    name: str
    channels: Sequence[InputChannel]
    producers: Sequence[int]


class TaskExchanges:
    """Builds the exchanges of one task, and lists them in the order in which it built them.

    `partitions` holds the outputs of this TaskManager by edge and producer. The object adds each new gate to
    `open_gates`, so that the caller can release the gates if a later part fails. A writer calls `wait_hard` when one
    batch makes more output than the budget allows.
    """

    def __init__(
        self,
        services: TaskManagerServices,
        parts: ExchangeParts,
        partitions: Mapping[tuple[int, int], ResultPartition],
        open_gates: list[GateChannels],
        *,
        vertex: JobVertex,
        subtask: int,
        mailbox: TaskMail,
        wait_hard: Callable[[RecordWriter], None],
    ) -> None:
        self._services = services
        self._parts = parts
        self._partitions = partitions
        self._open_gates = open_gates
        self._vertex = vertex
        self._subtask = subtask
        self._mailbox = mailbox
        self._wait_hard = wait_hard
        self._name = f"{vertex.name}[{subtask}]"
        self.writers: list[RecordWriter] = []
        #: The edges of the writers.
        self.written: list[JobEdge] = []
        self.codecs: list[BatchCodec] = []
        self.outputs: list[BuiltOutput] = []
        self.inputs: list[BuiltInput] = []
        self.gates: list[GateChannels] = []
        self.gathering: Gathering | None = None
        self.barriers = TaskBarriers(self._name, [], self.writers, services.report_part, services.clocks)
        self.requests: list[Callable[[], None]] = []
        #: The function that the gates call when they have data. An input with a queue replaces it.
        self._input_arrived: Callable[[], None] = mailbox.wake

    # --- outputs

    def build_writer(self, edge: JobEdge, context: OperatorContext) -> RecordWriter:
        services, plan = self._services, self._services.plan
        partition = self._partitions[edge.id, self._subtask]
        consumers = plan.consumers(edge, self._subtask)
        throttling = services.throttling
        gated: Gated = DueOutput
        if throttling is not None:
            targets = [(edge.target, consumer) for consumer in consumers]
            gated = throttling.output((self._vertex.id, self._subtask), targets, self._mailbox)
        writer = self._parts.writer(
            partition,
            selector_of(edge, partition, context, services.config.max_parallelism),
            BatchCodec(plan.job.schema(edge)),
            services.budget,
            self._wait_hard,
            columns=edge.columns,
            combiner=None if edge.combiner is None else edge.combiner(),
            gated=gated,
        )
        self.writers.append(writer)
        self.written.append(edge)
        self.outputs.append(BuiltOutput(plan.job.edge_name(edge), writer, consumers))
        return writer

    # --- the input

    def build_input(self) -> TaskInput:
        services = self._services
        edges = services.plan.job.inputs(self._vertex)
        for edge in edges:
            self.gates.append(self._build_gate(edge))
            schema = services.plan.job.schema(edge)
            self.codecs.append(BatchCodec(schema, paranoid=services.config.validates_batches))
        self.gathering = Gathering(services.budget, services.config.spill_dir)
        gates = [each.gate for each in self.gates]
        self.barriers = TaskBarriers(self._name, gates, self.writers, services.report_part, services.clocks)
        joins = services.config.flow_control is not FlowControl.UNBOUNDED  # throttles with UNBOUNDED count messages
        parts = gates, self.codecs, services.config.message_size, self.barriers, self.gathering
        ports = [edge.port for edge in edges]
        if services.throttling is None:
            return TaskInput(*parts, joins=joins, joined_messages=_JOINED_MESSAGES, ports=ports)
        made = services.throttling.input((self._vertex.id, self._subtask), self._senders(), self._mailbox)
        task_input = made(*parts, joins=joins, ports=ports)
        self._input_arrived = getattr(task_input, "arrived", self._mailbox.wake)
        return task_input

    def _senders(self) -> list[int | None]:
        """Return the number of the TaskManager of each channel's producer, or None for this TaskManager."""
        here, place = self._services.index, self._services.plan.place
        places = [place(producer) for each in self.inputs for producer in each.producers]
        return [None if at == here else at for at in places]

    def _build_gate(self, edge: JobEdge) -> GateChannels:
        services, plan = self._services, self._services.plan
        wanted = plan.channels(edge, self._subtask)
        name = f"input of {self._name} from {plan.job.vertex(edge.source).name}"
        remote = sum(plan.place(channel.producer) != services.index for channel in wanted)
        wake = self._mailbox.wake if services.throttling is None else lambda: self._input_arrived()
        gate = GateChannels(self._parts, InputGate(wake), name, remote)
        self._open_gates.append(gate)
        for channel in wanted:
            place = plan.place(channel.producer)
            if place == services.index:
                gate.add_local(self._partitions[edge.id, channel.producer].subpartitions[channel.subpartition])
            else:
                end = services.consumer_end(place, edge.id)
                self._request(end, gate.add_remote((edge.id, channel.producer, channel.subpartition), end))
        producers = [channel.producer for channel in wanted]
        self.inputs.append(BuiltInput(plan.job.edge_name(edge), gate.channels, producers))
        return gate

    def _request(self, end: ConsumerEnd, channel: RemoteInputChannel) -> None:
        if self._services.config.is_batch:
            self.requests.append(partial(_request_now, end, channel))
        else:
            end.request(channel)


def _request_now(end: ConsumerEnd, channel: RemoteInputChannel) -> None:
    """Request the partition. Runs on the network thread, before or after the connection is established."""
    end.request(channel)
    end.on_marked()
