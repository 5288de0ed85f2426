"""Builds the parts of an exchange: a partition and its pool, a writer, and a gate's channels with their buffers.

Tasks, benchmarks, experiments and tests use these parts. Tests pass their own locks and clock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from headgate.config import Config, FlowControl
from headgate.errors import ConfigError
from headgate.exchange.blocking import Subpartition
from headgate.exchange.channel_parts import ChannelBuffers, Connection
from headgate.exchange.channels import InputChannel, LocalInputChannel, RemoteInputChannel
from headgate.exchange.combiner import Combiner
from headgate.exchange.due import DueOutput
from headgate.exchange.gate import InputGate
from headgate.exchange.nameless_files import local_folder
from headgate.exchange.partition import ResultPartition
from headgate.exchange.partition_file import PartitionFile
from headgate.exchange.pending import PendingBudget, PendingCount
from headgate.exchange.plain_channel import PlainInputChannel, PlainLocalChannel
from headgate.exchange.selectors import ChannelSelector
from headgate.exchange.writer import RecordWriter
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.network_pool import NetworkBufferPool
from headgate.plan.network_memory import floating_pool, output_pool, shared_pool
from headgate.protocol.credit import BufferManager
from headgate.protocol.exclusive import ExclusiveBuffers
from headgate.protocol.plain_tcp import SharedBuffers
from headgate.records.arrow import BatchCodec


def network_memory(config: Config) -> NetworkBufferPool:
    """Allocate all segments of a TaskManager. Raises ConfigError if the machine has too little memory."""
    try:
        return NetworkBufferPool(config.network_memory // config.segment_size, config.segment_size, threading.Lock)
    except OSError as error:
        raise ConfigError(
            f"network_memory={config.network_memory} bytes cannot be allocated: {error}; lower it"
        ) from error


class ExchangeParts:
    """Builds the parts of exchanges, with the sizes of `config` and the segments of `memory`.

    `elapsed` returns the seconds since the job started. The default returns the seconds since this object was made.
    """

    def __init__(
        self,
        config: Config,
        memory: NetworkBufferPool,
        lock_factory: LockFactory = threading.Lock,
        clock: Callable[[], float] = time.monotonic,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        self.config = config
        self.memory = memory
        self.lock_factory = lock_factory
        self.clock = clock
        began = clock()
        #: The function `elapsed` for pools without a limit, because their error contains the time. None if pools have a
        #: limit.
        self.guard: Callable[[], float] | None = None
        if config.flow_control is FlowControl.UNBOUNDED:
            self.guard = elapsed or (lambda: clock() - began)

    def partition(self, name: str, subpartitions: int, wake: Callable[[], None]) -> ResultPartition:
        """Create a result partition and its pool.

        The partition calls `wake` when the task can write again, and when consumers have processed everything. In batch
        mode the partition writes its data to a file. Raises InsufficientBuffers.
        """
        config, size = self.config, output_pool(subpartitions, self.config)
        cap = config.max_buffers_per_channel if self.guard is None else sys.maxsize
        pool = self.memory.create_local_pool(
            name,
            required=size.required,
            maximum=size.maximum,
            subpartitions=subpartitions,
            max_per_subpartition=cap,
            max_overdraft=config.max_overdraft_buffers_per_gate,
            guard=self.guard,
        )
        return ResultPartition(
            name=name,
            subpartitions=subpartitions,
            pool=pool,
            max_buffers_per_subpartition=cap,
            lock_factory=self.lock_factory,
            wake=wake,
            on_settled=wake,
            file=PartitionFile(local_folder(config.spill_dir), self.lock_factory) if config.is_batch else None,
            compress=config.batch_shuffle_compression,
        )

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
        """Create the writer that fills a partition with rows, or with these columns of rows, or with what `combiner`
        leaves of them."""
        config = self.config
        return RecordWriter(
            partition=partition,
            selector=selector,
            codec=codec,
            budget=budget,
            message_size=config.message_size,
            buffer_timeout=-1.0 if config.is_batch else config.buffer_timeout,  # consumers wait for the end of the data
            watermark_interval=config.watermark_interval,
            clock=self.clock,
            wait_within_record=wait_within_record,
            columns=columns,
            combiner=combiner,
            gated=gated,
            joins=config.throttle is None and config.flow_control is not FlowControl.UNBOUNDED,
        )


class GateChannels:
    """Builds the channels of one gate, in order, and the memory that its remote channels share.

    `remote` is the number of remote channels. Raises InsufficientBuffers.
    """

    def __init__(self, parts: ExchangeParts, gate: InputGate, name: str, remote: int) -> None:
        self.gate = gate
        self.channels: list[InputChannel] = []
        gate.channels = self.channels
        self._config = config = parts.config
        self._lock_factory = parts.lock_factory
        self._clock = parts.clock
        self._is_credit = config.flow_control is FlowControl.CREDIT
        self._local_channel: Callable[..., LocalInputChannel] = LocalInputChannel
        self._remote_channel: Callable[..., RemoteInputChannel] = RemoteInputChannel
        if not self._is_credit:
            folder = local_folder(config.spill_dir)
            self._local_channel = partial(PlainLocalChannel, spill_folder=folder)
            self._remote_channel = partial(PlainInputChannel, spill_folder=folder)
        self._remote = remote
        self._exclusive = ExclusiveBuffers(parts.memory, f"{name}, exclusive")
        #: The gate's pool, or an empty list if the gate has no remote channels. With credit the pool holds the floating
        #: buffers, without credit all buffers.
        self.pools: list[LocalBufferPool] = []
        if remote:
            size = floating_pool(config) if self._is_credit else shared_pool(remote, config)
            owner = f"{name}, {'floating' if self._is_credit else 'shared'}"
            pool = parts.memory.create_local_pool(
                owner, required=size.required, maximum=size.maximum, guard=parts.guard
            )
            self.pools.append(pool)

    def add_local(self, source: Subpartition) -> LocalInputChannel:
        """Add a channel that reads a subpartition of this TaskManager."""
        channel = self._local_channel(
            index=len(self.channels),
            subpartition=source,
            notify=self.gate.notify,
            notify_priority=self.gate.notify_priority,
        )
        self.channels.append(channel)
        return channel

    def add_remote(self, address: tuple[int, int, int], connection: Connection) -> RemoteInputChannel:
        """Add a channel that receives from `address` (edge, producer, subpartition).

        The caller requests the partition.
        """
        channel = self._remote_channel(
            index=len(self.channels),
            address=address,
            buffers_of=self.buffers,
            notify=self.gate.notify,
            notify_priority=self.gate.notify_priority,
            connection=connection,
        )
        self.channels.append(channel)
        return channel

    def buffers(self, on_buffer: Callable[[], None]) -> ChannelBuffers:
        """Create the buffers of one remote channel. They call `on_buffer` when the channel gets a free buffer."""
        [pool] = self.pools
        if not self._is_credit:
            return SharedBuffers(pool, on_buffer, self._lock_factory, self._clock)
        return BufferManager(
            exclusive=self._exclusive,
            initial_credit=self._config.buffers_per_channel,
            floating_pool=pool,
            channels=self._remote,
            on_credit=on_buffer,
            lock_factory=self._lock_factory,
            clock=self._clock,
        )

    def release(self) -> None:
        """Release all channels and give back the memory. A second call does nothing."""
        self.gate.release()
        for pool in self.pools:
            pool.destroy()
