"""Builds the tasks of one TaskManager from the plan, and connects their partitions, gates and channels."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, SourceReader
from headgate.connectors.read_bursts import ReadBursts
from headgate.connectors.watermarks import UNBOUNDED, WatermarkGenerator
from headgate.exchange.channels import InputChannel
from headgate.exchange.gathering import Gathering
from headgate.exchange.partition import ResultPartition
from headgate.exchange.writer import RecordWriter
from headgate.operators.operator import Operator, OperatorContext
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobEdge, JobVertex
from headgate.plan.node_keys import node_key
from headgate.records.hashing import default_max_parallelism, key_group_range
from headgate.runtime.latency_markers import MarkerTimer
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.chain import Chained, SideOutputs, ToOperator, ToSecondInput, ToWriter, fan_out
from headgate.runtime.task.debloating import Debloating
from headgate.runtime.task.exchange_parts import ExchangeParts, GateChannels
from headgate.runtime.task.heads import Head, InputHead, SourceHead
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.operator_timers import operator_timers
from headgate.runtime.task.restore import ended_groups, input_in_flight, snapshots
from headgate.runtime.task.routing import key_groups
from headgate.runtime.task.sink_operator import SinkOperator
from headgate.runtime.task.task import Task, TaskMail
from headgate.runtime.task.task_channels import channels_of
from headgate.runtime.task.task_exchanges import BuiltInput, BuiltOutput, TaskExchanges
from headgate.runtime.task.task_manager_services import TaskManagerServices
from headgate.runtime.task.task_state import TaskState
from headgate.runtime.task.time_account import Wait, time_account

if TYPE_CHECKING:
    from headgate.exchange.watermark_alignment import AlignedSubtask

#: Seconds between two checks whether the target of a sink has room.
_TARGET_POLL = 0.01
#: The least seconds, on average, between two watermark reports of an aligned source to the driver. The least time
#: between two reports of one subtask is this value times the number of the source's subtasks.
_REPORTS_EVERY = 1e-3


@dataclass(slots=True, kw_only=True)
class BuiltTask:
    """A task, with the objects that the TaskManager releases when the task has ended."""

    task: Task
    vertex: JobVertex
    subtask: int
    nodes: dict[int, Operator | SourceHead]
    source: SourceHead | None
    #: The subtask's side of its source's watermark alignment, or None.
    alignment: AlignedSubtask | None
    input: TaskInput | None
    gates: list[GateChannels]
    partitions: list[ResultPartition]
    channels: list[InputChannel]
    gathering: Gathering | None
    debloating: Debloating | None
    barriers: TaskBarriers
    state: TaskState
    outputs: list[BuiltOutput]
    inputs: list[BuiltInput]
    #: In batch mode: calls that request remote partitions. The network thread runs them once the partitions are
    #: finished. Empty in other jobs, which request their partitions when the task is built.
    requests: list[Callable[[], None]]

    def return_buffers(self) -> None:
        """Give back the network memory of a task that has ended and whose output is in files.

        A second call does nothing.
        """
        if self.input is not None:
            self.input.close()
        for gate in self.gates:
            gate.release()
        for partition in self.partitions:
            partition.pool.destroy()

    def release(self) -> None:
        """Release all memory of an ended task, also its output. A second call does nothing."""
        for partition in self.partitions:
            partition.release()
        for writer in self.task.writers:
            writer.close()
        self.return_buffers()


class TaskBuilder:
    """Builds the tasks of one TaskManager: all at once, or in batch mode stage by stage.

    It builds partitions first, so that local channels and early requests of other TaskManagers find them. Tests pass
    their own `parts`.
    """

    def __init__(self, services: TaskManagerServices, parts: ExchangeParts | None = None) -> None:
        self._services = services
        wall, monotonic = services.clocks.wall, services.clocks.monotonic
        self.parts = parts or ExchangeParts(
            services.config, services.pool, clock=monotonic, elapsed=lambda: wall() - services.started_at()
        )
        self.partitions: dict[tuple[int, int], ResultPartition] = {}
        # Gates and partitions of tasks that are not complete yet.
        self.gates: list[GateChannels] = []
        self._written: list[ResultPartition] = []
        self._mailboxes: dict[tuple[int, int], TaskMail] = {}

    def build(self, vertices: Container[int]) -> list[BuiltTask]:
        """Build this TaskManager's tasks of the given vertices.

        Raises InsufficientBuffers if network memory is too small. The caller must then call `discard`.
        """
        mine = [each for each in self._services.plan.subtasks(self._services.index) if each[0].id in vertices]
        for vertex, subtask in mine:
            self._mailboxes[vertex.id, subtask] = self._services.new_mailbox()
            for edge in self._edges_out(vertex):
                name = f"output of {vertex.name}[{subtask}] to {self._services.plan.job.vertex(edge.target).name}"
                count = len(self._services.plan.consumers(edge, subtask))
                partition = self.parts.partition(name, count, self._mailboxes[vertex.id, subtask].wake)
                self._written.append(partition)
                self.partitions[edge.id, subtask] = partition
        built = [_TaskAssembly(self._services, self, vertex, subtask).assemble() for vertex, subtask in mine]
        self.gates.clear()
        self._written.clear()
        return built

    def discard(self) -> None:
        """Give back the network memory of tasks that never ran, because `build` failed."""
        for gate in self.gates:
            gate.release()
        for partition in self._written:
            partition.release()
            partition.pool.destroy()

    def mailbox(self, vertex: JobVertex, subtask: int) -> TaskMail:
        return self._mailboxes[vertex.id, subtask]

    def _edges_out(self, vertex: JobVertex) -> list[JobEdge]:
        return [edge for edge in self._services.plan.job.edges if edge.source == vertex.id]


class _TaskAssembly:
    """Builds one task from the parts of its vertex: state, head, chain, outputs and input."""

    def __init__(self, services: TaskManagerServices, builder: TaskBuilder, vertex: JobVertex, subtask: int) -> None:
        self._services = services
        self._builder = builder
        self._vertex = vertex
        self._subtask = subtask
        self._mailbox = builder.mailbox(vertex, subtask)
        self._name = f"{vertex.name}[{subtask}]"
        self._exchanges = TaskExchanges(
            services,
            builder.parts,
            builder.partitions,
            builder.gates,
            vertex=vertex,
            subtask=subtask,
            mailbox=self._mailbox,
            wait_hard=self._wait_hard,
        )
        self._entries: list[ToOperator] = []
        self._entered: list[Node] = []
        self._nodes: dict[int, Operator | SourceHead] = {}
        self._alignment: AlignedSubtask | None = None
        self._task: Task | None = None
        self._times = time_account(services.clocks.monotonic, services.config.metrics)

    def assemble(self) -> BuiltTask:
        head_node = self._vertex.head
        task_input: TaskInput | None = None
        source: SourceHead | None = None
        head: Head
        if head_node.source is not None:
            source = self._nodes[head_node.id] = self._build_source_head(head_node)
            head = self._aligned(self._gated(source, head_node), source, head_node)
        else:
            task_input = self._exchanges.build_input()
            entry = self._build_entry(head_node)
            second = ToSecondInput(entry) if any(edge.port for edge in head_node.inputs) else None
            head = self._watched(InputHead(task_input, entry, second))
        state = self._build_state(source)
        partitions = [writer.partition for writer in self._exchanges.writers]
        for partition in partitions:
            partition.watch_barriers(self._on_barrier_left)
        task = self._task = Task(
            self._name,
            head,
            operators=self._entries,
            writers=self._exchanges.writers,
            mailbox=self._mailbox,
            opened=self._services.opened,
            restore=lambda: self._restore(state, task_input),
            ended=lambda: self._ended(state),
            clocks=self._services.clocks,
            times=self._times,
        )
        task.add_timed(self._exchanges.barriers)
        task.add_timers(operator_timers(self._entries, self._services.clocks))
        debloating = self._build_debloating(task_input, task)
        channels = [channel for gate in self._exchanges.gates for channel in gate.channels]
        return BuiltTask(
            task=task,
            vertex=self._vertex,
            subtask=self._subtask,
            nodes=self._nodes,
            source=source,
            alignment=self._alignment,
            input=task_input,
            gates=self._exchanges.gates,
            partitions=partitions,
            channels=channels,
            gathering=self._exchanges.gathering,
            debloating=debloating,
            barriers=self._exchanges.barriers,
            state=state,
            outputs=self._exchanges.outputs,
            inputs=self._exchanges.inputs,
            requests=self._exchanges.requests,
        )

    # --- the state

    def _build_state(self, source: SourceHead | None) -> TaskState:
        entries = [(node_key(node), entry) for node, entry in zip(self._entered, self._entries, strict=True)]
        upload = self._services.upload
        store = None if upload is None else partial(upload, self._name, self._vertex.id, self._subtask)
        channels = partial(channels_of, self._services.plan, self._vertex, self._subtask, self._exchanges.written)
        state = TaskState(
            self._subtask,
            self._vertex.parallelism,
            head=None if source is None else (node_key(self._vertex.head), source),
            entries=entries,
            store=store,
            channels=channels,
            clocks=self._services.clocks,
            times=self._times,
        )
        if store is not None:
            self._exchanges.barriers.capturer = state
        return state

    def _on_barrier_left(self) -> None:
        self._exchanges.barriers.on_barrier_left()
        self._mailbox.wake()

    def _ended(self, state: TaskState) -> None:
        self._exchanges.barriers.end()
        state.end()

    def _restore(self, state: TaskState, task_input: TaskInput | None) -> None:
        """Restore the task from the checkpoint. Runs on the task's thread, and may wait for the storage."""
        if self._services.restore is None:
            return
        groups = key_group_range(self._subtask, self._vertex.parallelism, self._max_parallelism)
        nodes = set(map(node_key, self._vertex.nodes))
        found = snapshots(self._services.restore, nodes, groups, self._max_parallelism)
        state.restore(found, ended_groups(self._services.restore, nodes), self._services.restore.id)
        if task_input is not None:
            keyed = partial(key_groups, max_parallelism=self._services.config.max_parallelism)
            restored = input_in_flight(
                self._services.restore,
                self._services.plan,
                vertex=self._vertex,
                subtask=self._subtask,
                codecs=self._exchanges.codecs,
                keyed=keyed,
            )
            task_input.restore(restored)

    @property
    def _max_parallelism(self) -> int:
        return self._services.config.max_parallelism or default_max_parallelism(self._vertex.parallelism)

    def _build_debloating(self, task_input: TaskInput | None, task: Task) -> Debloating | None:
        if task_input is None or not self._services.config.debloat:
            return None
        gates = [each.gate for each in self._exchanges.gates]
        debloating = Debloating(
            gates, self._services.config, lambda: self._times.seconds()[Wait.INPUT], task_input.set_message_size
        )
        task.add_timed(debloating)
        return debloating

    # --- the chain

    def _context(self, node: Node) -> OperatorContext:
        return OperatorContext(
            self._services.job,
            node.name,
            self._subtask,
            node.parallelism,
            self._max_parallelism,
            let_task_work=self._work_within_record,
        )

    def _build_source_head(self, node: Node) -> SourceHead:
        source, spec = node.source, node.watermark
        assert source is not None
        context = self._context(node)
        output, sides = self._build_outputs(node)

        def open_reader(positions: Sequence[Any] | None) -> SourceReader:
            for position in positions or ():
                source.check_position(position)
            return source.reader(
                ReaderContext(
                    job=context.job,
                    operator=context.operator,
                    subtask=context.subtask,
                    parallelism=context.parallelism,
                    wake=self._mailbox.wake,
                    started_at=self._services.started_at(),
                    clock=self._services.clocks.wall,
                    positions=positions,
                    sides={tag: side.emit for tag, side in sides.items()},
                )
            )

        idle_timeout = spec.idle_timeout if spec is not None and not source.bounded else None
        watermarks = None
        if spec is not None:
            watermarks = WatermarkGenerator(
                spec.column,
                source.schema,
                out_of_orderness=UNBOUNDED if self._services.config.is_batch else spec.out_of_orderness,
                on_null_time=spec.on_null_time,
                idle_timeout=idle_timeout,
                max_drift=None if self._services.config.is_batch else spec.max_drift,
                clock=self._services.clocks.monotonic,
            )
        fields = zip(source.schema, node.schema, strict=True)
        given = pa.schema([read if read.name in node.with_dictionaries else sent for read, sent in fields])
        plain = None if given.types == source.schema.types else given
        interval = self._services.config.latency_interval
        markers = MarkerTimer(interval, node.id, self._subtask) if interval else None
        return SourceHead(
            open_reader,
            schema=source.schema,
            plain=plain,
            watermarks=watermarks,
            idle_timeout=idle_timeout,
            output=output,
            context=context,
            markers=markers,
            clocks=self._services.clocks,
            times=self._times,
            bursts=self._bursts(node),
        )

    def _bursts(self, node: Node) -> ReadBursts | None:
        """Return the bursts in which the source reads, or None. A burst is one batch, and it would be too large for a
        throttle, or for watermark alignment."""
        config, spec = self._services.config, node.watermark
        is_throttled = config.throttle is not None or node.throttle is not None
        is_aligned = spec is not None and spec.max_drift is not None
        if config.buffer_timeout != "adaptive" or is_throttled or is_aligned:
            return None
        return ReadBursts()

    def _aligned(self, head: Head, source: SourceHead, node: Node) -> Head:
        """Return `head`, wrapped in an `AlignedSourceHead` if the source has watermark alignment."""
        spec = node.watermark
        if spec is None or spec.max_drift is None or self._services.config.is_batch:
            return head
        if node.parallelism == 1 and spec.group is None:
            return head
        from headgate.exchange.watermark_alignment import AlignedSubtask
        from headgate.runtime.task.aligned_head import AlignedSourceHead  # few jobs align watermarks

        send = partial(self._services.report_watermark, node.id, self._subtask)
        self._alignment = AlignedSubtask(spec.max_drift, node.parallelism * _REPORTS_EVERY, send)
        return AlignedSourceHead(head, source, self._alignment)

    def _gated(self, source: SourceHead, node: Node) -> Head:
        """Return the source's head, wrapped in the throttle of the source, or else of the job, if there is one."""
        clock = self._services.clocks.monotonic
        policy = None if node.throttle is None else node.throttle.source_policy(clock())
        if policy is None:
            return self._throttled(source)
        from headgate.runtime.task.throttled_head import ThrottledSourceHead  # few jobs have a throttle

        return ThrottledSourceHead(source, policy, clock)

    def _throttled(self, source: SourceHead) -> Head:
        """Return the source's head, wrapped by the job's throttle if the job has one."""
        throttling, task = self._services.throttling, (self._vertex.id, self._subtask)
        if throttling is None:
            return source
        return throttling.source(task, source, self._mailbox, self._exchanges.barriers.inject)

    def _watched(self, head: Head) -> Head:
        """Return the head of a task with producers, wrapped by the job's throttle if the job has one."""
        throttling = self._services.throttling
        return head if throttling is None else throttling.reader((self._vertex.id, self._subtask), head)

    def _build_entry(self, node: Node) -> ToOperator:
        """Build the node's operator, and all operators that follow it in the chain.

        `_entries` starts with the end of the chain, so the task opens the last operator first.
        """
        output, sides = self._build_outputs(node)
        operator: Operator
        if node.sink is not None:
            deliver = partial(self._deliver, node.id)
            attempt, checkpoint = self._services.attempt, self._services.checkpoint
            clocks = self._services.clocks
            operator = SinkOperator(
                node.sink, node.schema, deliver, attempt, checkpoint, wait_until=self._wait_for_target, clocks=clocks
            )
        else:
            assert node.operator is not None
            operator = node.operator()
        operator.output, operator.sides = output, sides
        entry = ToOperator(
            operator,
            self._context(node),
            self._services.state_memory,
            clocks=self._services.clocks,
            times=self._times,
        )
        self._nodes[node.id] = operator
        self._entries.append(entry)
        self._entered.append(node)
        return entry

    def _deliver(self, node_id: int, batch: pa.RecordBatch, checkpoint: int) -> None:
        assert self._task is not None
        self._services.deliver(node_id, batch, checkpoint, self._task)

    def _work_within_record(self) -> None:
        if self._task is not None:  # no task while the chain is built
            self._task.work_within_record()

    def _wait_for_target(self, has_room: Callable[[], bool]) -> None:
        assert self._task is not None
        self._task.wait_until(has_room, _TARGET_POLL)

    def _build_outputs(self, node: Node) -> tuple[Chained, dict[str, Chained]]:
        """Build the node's main output, and the side outputs that other nodes read."""
        main = fan_out(self._build_consumers(node, None))
        consumers = {tag: self._build_consumers(node, tag) for tag in node.sides}
        sides = {tag: fan_out(outputs) for tag, outputs in consumers.items() if outputs}
        return SideOutputs(main, sides.values()) if sides else main, sides

    def _build_consumers(self, node: Node, tag: str | None) -> list[Chained]:
        edges = self._services.plan.job.outputs(self._vertex, node, tag)
        context = self._context(node)
        outputs: list[Chained] = [ToWriter(self._exchanges.build_writer(edge, context), self._times) for edge in edges]
        return outputs + [self._build_entry(consumer) for consumer in self._vertex.chained_consumers(node.id, tag)]

    def _wait_hard(self, writer: RecordWriter) -> None:
        assert self._task is not None
        self._task.wait_within_record(writer)
