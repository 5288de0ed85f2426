"""The work of a simulation that takes virtual time: turns, copies, and the batches that writers split and encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headgate.config import Config
from headgate.exchange.combiner import Combiner
from headgate.exchange.due import DueOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget, PendingCount
from headgate.exchange.selectors import ChannelSelector
from headgate.exchange.writer import RecordWriter
from headgate.memory.network_pool import NetworkBufferPool
from headgate.records.arrow import BatchCodec
from headgate.runtime.task.exchange_parts import ExchangeParts
from headgate.simulation.costs import Costs
from headgate.simulation.world import World


class Work:
    """Lets the running event take virtual time, by `costs`. The world's random numbers vary each duration."""

    def __init__(self, world: World, costs: Costs) -> None:
        self.world = world
        self._costs = costs
        self._least = 1 - costs.jitter
        self._range = 2 * costs.jitter
        #: When a task began its last turn.
        self.last_task_turn = 0.0

    def take(self, seconds: float) -> None:
        """Let the running event take about `seconds` longer."""
        self.world.spend(seconds * (self._least + self._range * self.world.random.random()))

    def take_task_turn(self) -> None:
        """Let the running event take as long as a task's turn without work."""
        self.last_task_turn = self.world.clock()
        self.take(self._costs.task_turn)

    def take_network_turn(self) -> None:
        """Let the running event take as long as a network thread's turn without bytes."""
        self.take(self._costs.network_turn)

    def copy(self, count: int) -> None:
        """Let the running event copy `count` bytes into a socket or out of it."""
        self.world.spend(self._costs.byte * count)

    def write_batch(self) -> None:
        """Let the running event split and encode a batch."""
        self.take(self._costs.batch)


class WorkingParts(ExchangeParts):
    """The parts of exchanges in virtual time. Their writers take time for each batch."""

    def __init__(self, config: Config, memory: NetworkBufferPool, work: Work) -> None:
        super().__init__(config, memory, clock=work.world.clock)
        self._work = work

    def writer(
        self,
        partition: ResultPartition,
        selector: ChannelSelector,
        codec: BatchCodec,
        budget: PendingBudget,
        wait_within_record: Callable[[RecordWriter], None],
        *,
        columns: Sequence[str] | None = None,
        combiner: Combiner | None = None,
        gated: Callable[[ResultPartition, PendingCount], DueOutput] = DueOutput,
    ) -> RecordWriter:
        """Create the writer that fills a partition with rows, or with these columns of rows."""
        working = _WorkingSelector(selector, self._work)
        return super().writer(
            partition, working, codec, budget, wait_within_record, columns=columns, combiner=combiner, gated=gated
        )


class _WorkingSelector:
    """A channel selector that takes time for each batch."""

    def __init__(self, selector: ChannelSelector, work: Work) -> None:
        self.splits = selector.splits
        self._selector = selector
        self._work = work

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        self._work.write_batch()
        return self._selector.select(batch)
