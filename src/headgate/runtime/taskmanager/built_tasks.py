"""The tasks of one TaskManager, and how the driver's orders reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from headgate.records.events import CheckpointBarrier
from headgate.runtime.control_messages import AlignSource, ContinueSources, Drain, InjectBarrier
from headgate.runtime.task.task import Task
from headgate.runtime.task.task_builder import BuiltTask


class BuiltTasks:
    """The tasks that one TaskManager has built. The TaskManager adds tasks to the list `all`, and passes orders to
    methods."""

    def __init__(self) -> None:
        self.all: list[BuiltTask] = []
        self._drains = False

    def of(self, task: Task) -> BuiltTask:
        return next(built for built in self.all if built.task is task)

    def begin(self, stage: Sequence[BuiltTask]) -> None:
        """Let tasks take their first batches."""
        if self._drains:
            _drain(stage)
        for built in stage:
            for channel in built.channels:
                channel.start()
        for built in stage:
            built.task.begin()

    def wake(self) -> None:
        for built in self.all:
            built.task.wake()

    def inject(self, message: InjectBarrier) -> None:
        """Start a checkpoint at the tasks that the message names. A probe starts at all sources of this TaskManager."""
        roots = message.roots
        if message.stops:
            self.hold(True)
        barrier = CheckpointBarrier(
            message.checkpoint, message.timestamp, message.alignment, message.timeout, is_probe=roots is None
        )
        for built in self.all:
            if built.input is None if roots is None else (built.vertex.id, built.subtask) in roots:
                built.barriers.inject(barrier)
                built.task.wake()

    def hold(self, is_held: bool) -> None:
        """Stop all sources from reading if `is_held`, because the job stops with a checkpoint. Otherwise let them read
        again."""
        for built in self.all:
            if built.source is not None:
                built.source.is_held = is_held
                built.task.wake()

    def on_order(self, order: ContinueSources | Drain | AlignSource) -> None:
        """Carry out an order that the driver sent for sources."""
        match order:
            case ContinueSources():
                self.hold(False)
            case Drain():
                self.drain()
            case AlignSource():
                self.align(order)
            case _:
                assert_never(order)

    def align(self, message: AlignSource) -> None:
        """Set the watermark up to which the subtasks of an aligned source may read."""
        for built in self.all:
            if built.alignment is not None and built.vertex.head.id == message.node:
                built.alignment.bound = message.bound
                built.task.wake()

    def drain(self) -> None:
        """Let all sources end at their current positions, also sources that later stages build."""
        self._drains = True
        _drain(self.all)

    @property
    def are_consumed(self) -> bool:
        """Whether consumers have taken all output of the tasks."""
        return all(partition.is_consumed for built in self.all for partition in built.partitions)

    def stuck_readers(self) -> list[str]:
        """Return the sources whose task has ended while the user's iterator still runs, on a thread of its own."""
        sources = [built.source for built in self.all if built.source is not None]
        stuck = [source.context for source in sources if source.is_stuck]
        return [f"{context.operator}[{context.subtask}]" for context in stuck]


def _drain(tasks: Sequence[BuiltTask]) -> None:
    for built in tasks:
        if built.source is not None:
            built.source.ends_now = True
            built.task.wake()
