"""All options of a job: one frozen dataclass, from which `docs/reference/options.md` is written (`scripts/docs.py`).

A size is a number of bytes, or a string such as "32 kb" (32 x 1024 bytes). A duration is a number of seconds, a string
such as "100 ms", or a `timedelta`. The names are those of Flink, in snake_case.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Final, Literal

from headgate import restart
from headgate.errors import ConfigError
from headgate.option_kinds import (
    BUFFER_TIMEOUT,
    DURATION,
    FLAG,
    HOST,
    PATH,
    PORTS,
    SIZE,
    STRATEGY,
    THROTTLE,
    TOKEN,
    WHOLE,
    is_loopback,
    member_of,
    one_of,
    or_none,
)
from headgate.options import DeclaredOptions, option
from headgate.restart import RestartStrategy
from headgate.throttle.mechanism import JobOptions, Mechanism

_LOOPBACK: Final = "127.0.0.1"


class FlowControl(enum.StrEnum):
    """The ways in which consumers hold a producer back; see the option `flow_control`."""

    CREDIT = "credit"
    TCP = "tcp"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Config(DeclaredOptions):
    """All options of one job, as keyword arguments; see `docs/reference/options.md`.

    Raises ConfigError for an unknown option, for an impossible value, and for an option that would have no effect.

    >>> config = hg.Config(segment_size="64 kb", buffer_timeout="10 ms")
    >>> config.segment_size, config.buffer_timeout
    (65536, 0.01)
    >>> env = hg.StreamEnvironment(parallelism=2, config=config)
    """

    segment_size: int = option(32 << 10, SIZE, "Size of one network buffer, 512 B to 1 MiB.", least=512, most=1 << 20)
    message_size: int = option(
        128 << 10,
        SIZE,
        "About how many bytes of rows a channel gathers before it sends them as one message.",
        least=1,
    )
    flow_control: FlowControl = option(
        FlowControl.CREDIT,
        member_of(FlowControl),
        "How consumers hold a producer back. `credit`: a producer may send a channel as many buffers as the consumer "
        "has free for this channel. `tcp`: a consumer without a free buffer stops reading the connection, as in Flink "
        "before 1.5. `unbounded`: queues grow until `network_memory` is full, and then the job fails with "
        "`NetworkMemoryFull`. `tcp` and `unbounded` are for comparison (docs/concepts/exchange.md).",
    )
    throttle: Mechanism | None = option(
        None,
        or_none(THROTTLE),
        "The throttle of the job. `hg.throttle.FixedRate(50_000)` limits every source that has none of its own "
        "(`from_source(..., throttle=)`); see docs/how-to/limit-a-sources-rate.md. None: no throttle.",
    )
    connections_per_pair: int = option(
        1,
        WHOLE,
        "Number of TCP connections from one TaskManager to another. The channels between the two are distributed over "
        "these connections.",
        unit="connections",
        least=1,
    )
    request_backoff_initial: float = option(
        0.1,
        DURATION,
        "How long a consumer waits before it asks again for a result that its producer does not have yet. The wait "
        "doubles each time.",
        above=0,
    )
    request_backoff_max: float = option(
        10.0,
        DURATION,
        "The longest wait before a consumer asks again. If the producer has no result after this wait, the job fails.",
    )
    network_memory: int = option(64 << 20, SIZE, "Memory for network buffers in each TaskManager.")
    buffers_per_channel: int = option(
        2,
        WHOLE,
        "Buffers that belong to one input channel alone. With 0, a channel has only shared (floating) buffers, and its "
        "producer announces its backlog.",
        unit="buffers",
        least=0,
    )
    floating_buffers_per_gate: int = option(
        8,
        WHOLE,
        "Buffers that the channels of one input share. Channels with a backlog get them. A single channel keeps all; "
        "several channels share half of them even without a backlog.",
        unit="buffers",
        least=1,
    )
    max_buffers_per_channel: int = option(
        10,
        WHOLE,
        "The most buffers that may wait in one output channel. Refused with `unbounded`, which has no such limit.",
        unit="buffers",
        least=1,
    )
    max_overdraft_buffers_per_gate: int = option(
        5,
        WHOLE,
        "Buffers that an output may take beyond its pool when one batch needs many. The task takes no new batch until "
        "it has returned them. Refused with `unbounded`, where a pool may take all buffers.",
        unit="buffers",
        least=0,
    )
    buffer_timeout: float | Literal["adaptive"] = option(
        0.1,
        BUFFER_TIMEOUT,
        "How long rows may wait until their message is full. 0: rows leave after every batch; batches that follow "
        "each other within a millisecond may leave together. -1: only full messages leave. "
        '`"adaptive"`: rows leave when the consumer has processed all earlier rows, and a source whose rows trickle '
        "reads them every 20 ms. In batch mode, only full messages leave.",
    )
    watermark_interval: float = option(
        0.2,
        DURATION,
        "How often a watermark is sent on a channel that has no rows. Batch mode has only the watermark at the end.",
        least=0,
    )
    latency_interval: float = option(
        0.0, DURATION, "How often each source sends a latency marker. 0 means never.", least=0
    )
    metrics: bool = option(
        True,
        FLAG,
        "Whether TaskManagers measure and report while the job runs. With False, `JobHandle.metrics()` and the "
        "diagnosis are empty until the end, and there are no warnings. The last report then has all counts, but 0 for "
        "the times of tasks and operators.",
    )
    max_parallelism: int | None = option(
        None,
        or_none(WHOLE),
        "The number of key groups, which limits the parallelism. It is at most 32768. None means that the parallelism "
        "determines the number.",
        unit="subtasks",
        least=1,
        most=32768,
    )
    slots_per_task: int = option(
        1, WHOLE, "How many subtasks of each operator one Spark task runs.", unit="slots", least=1
    )
    slots_timeout: float = option(
        10.0,
        DURATION,
        "How long to wait for enough free slots. After this time a new job is refused, and a restart is tried again.",
        least=0,
    )
    registration_timeout: float = option(
        60.0,
        DURATION,
        "How long TaskManagers may take from their launch until all have registered with the driver. The start of the "
        "Python processes is part of this time.",
        above=0,
    )
    heartbeat_timeout: float = option(
        50.0,
        DURATION,
        "A TaskManager from which the driver gets no message for this long counts as lost.",
        above=0,
    )
    bind_host: str | None = option(
        None,
        or_none(HOST),
        "The address on which the driver and the TaskManagers listen. `0.0.0.0` means all addresses of a machine. "
        "None means loopback on local masters, otherwise the address that Spark reports.",
    )
    port_range: tuple[int, int] | None = option(
        None,
        or_none(PORTS),
        "The first and last port to listen on. The driver and each TaskManager of a machine need one port each. "
        "None means any free port.",
        unit="ports",
    )
    tls: Literal["auto", "on", "off"] = option(
        "auto",
        one_of("auto", "on", "off"),
        "Whether links between the job's processes are encrypted with TLS 1.3 (docs/concepts/security.md): "
        '`"auto"` encrypts if the driver listens on an address other than loopback, `"on"` always, `"off"` never. '
        "With `off` the job logs a warning at its start, and checks every batch as with `paranoid`.",
    )
    spill_dir: str | None = option(
        None,
        or_none(PATH),
        "The folder or URI to which Headgate writes the rows of DataFrames; all executors must reach it. If it is a "
        "folder, Headgate also writes three other kinds of data to it: messages above 5 MiB while they are received, "
        "the output of operators in batch mode, and, without credit, data after a barrier. If it is a URI, these three "
        "go to the machine's temporary folder. None means the temporary folder for all data. A URI must not hold "
        "credentials.",
    )
    execution_mode: Literal["streaming", "batch"] = option(
        "streaming",
        one_of("streaming", "batch"),
        '`"streaming"`: all operators run at once, and rows flow between them. `"batch"`: an operator after an '
        "exchange starts when all operators before it have finished, and reads their output from files. All sources "
        "must end.",
    )
    batch_shuffle_compression: bool = option(
        True, FLAG, "In batch mode, compress each buffer with LZ4 if that makes it smaller."
    )
    paranoid: bool = option(
        False, FLAG, "Check every message completely after decoding. This is slow, and helps to find faults."
    )
    debloat: bool = option(
        False,
        FLAG,
        "Make buffers smaller for a slow reader, so that the reader needs only `debloat_target` to process the data in "
        "flight to it. Refused in batch mode, where a reader starts after all data are written.",
        needs="metrics",
    )
    debloat_target: float = option(
        1.0,
        DURATION,
        "How long a reader should need to process the data in flight to it.",
        above=0,
        needs="debloat",
    )
    debloat_period: float = option(
        0.2, DURATION, "How often a reader's throughput is measured.", above=0, needs="debloat"
    )
    debloat_samples: int = option(
        20,
        WHOLE,
        "Number of throughput measurements over which the buffer size is smoothed.",
        unit="samples",
        least=1,
        needs="debloat",
    )
    debloat_threshold_percentages: int = option(
        25,
        WHOLE,
        "By how much the buffer size must change before consumers announce it to producers.",
        unit="percent",
        least=0,
        most=100,
        needs="debloat",
    )
    min_segment_size: int = option(
        256, SIZE, "The smallest size that debloating gives a buffer.", least=1, needs="debloat"
    )
    max_state_memory: int | None = option(
        None,
        or_none(SIZE),
        "The most state that the operators of a TaskManager may hold together (their `state_bytes`, see "
        "docs/reference/metrics.md). If they hold more, the job fails and does not restart; the error names the "
        "operator that holds the most. None means as much memory as the machine has.",
        above=0,
    )
    checkpoint_dir: str | None = option(
        None,
        or_none(PATH),
        "The folder or URI for the job's checkpoints. All machines of the job must reach it. None means that the job "
        "takes no checkpoints, and a failure ends the job. A URI must not hold credentials.",
    )
    checkpoint_interval: float = option(
        10.0, DURATION, "How often a checkpoint starts.", above=0, needs="checkpoint_dir"
    )
    checkpoint_timeout: float = option(
        600.0,
        DURATION,
        "How long a checkpoint or savepoint may take until its metadata is stored. The job cancels a slower "
        "checkpoint. Sinks commit after that, and may take longer. Refused in batch mode, which has no checkpoints.",
        above=0,
    )
    checkpoint_min_pause: float = option(
        0.0,
        DURATION,
        "The least time from the end of one checkpoint to the start of the next.",
        least=0,
        needs="checkpoint_dir",
    )
    tolerable_failed_checkpoints: int = option(
        0,
        WHOLE,
        "How many checkpoints in a row may fail. If one more fails, the job restarts from the last complete "
        "checkpoint.",
        unit="checkpoints",
        least=0,
        needs="checkpoint_dir",
    )
    checkpoint_mode: Literal["exactly-once", "at-least-once"] = option(
        "exactly-once",
        one_of("exactly-once", "at-least-once"),
        '`"exactly-once"` or `"at-least-once"`. With `"at-least-once"` no channel waits for the barriers of other '
        "channels, and rows may count twice after a restart.",
        needs="checkpoint_dir",
    )
    unaligned: bool = option(
        False,
        FLAG,
        "Whether barriers overtake queued rows. The checkpoint then stores these rows, and does not wait until they "
        'are processed. Needs `flow_control="credit"` (docs/concepts/checkpoints.md).',
        needs="checkpoint_dir",
    )
    aligned_timeout: float = option(
        0.0,
        DURATION,
        "With `unaligned`, how long a checkpoint stays aligned before barriers overtake rows. With 0, barriers "
        "overtake at once.",
        least=0,
        needs="checkpoint_dir",
    )
    restart: RestartStrategy | None = option(
        None,
        or_none(STRATEGY),
        "The restart strategy of a job with checkpoints: `hg.restart.exponential()`, `hg.restart.fixed(attempts, "
        "delay)`, `hg.restart.failure_rate(max_failures, interval)` or `hg.restart.none()`. None: `exponential()`.",
        needs="checkpoint_dir",
    )

    web_port: int | None = option(
        0,
        or_none(WHOLE),
        "The port of the page of the program's jobs (docs/how-to/watch-a-job.md). 0 means any free port. None means "
        "that the job has no page. All jobs of a program share the server of the first job.",
        unit="port",
        least=0,
        most=65535,
    )
    web_host: str = option(
        _LOOPBACK,
        HOST,
        "The address on which the driver serves the page. An address other than loopback needs `web_token`.",
    )
    web_token: str | None = option(
        None,
        or_none(TOKEN),
        "The secret that a reader of the page must give, at least 16 characters. None means no secret, which is "
        "allowed only on loopback.",
        secret=True,
    )

    def _check(self) -> None:
        """Check combinations of options, and refuse an option that would have no effect."""
        if self.network_memory < self.segment_size:
            raise ConfigError(
                f"network_memory={self.network_memory} is impossible: it must be at least "
                f"segment_size={self.segment_size}"
            )
        if self.request_backoff_max < self.request_backoff_initial:
            raise ConfigError(
                f"request_backoff_max={self.request_backoff_max} is impossible: it must be at least "
                f"request_backoff_initial={self.request_backoff_initial}"
            )
        if self.debloat and self.min_segment_size > self.segment_size:
            raise ConfigError(
                f"min_segment_size={self.min_segment_size} is above segment_size={self.segment_size}, so debloating "
                "could not make a buffer smaller; lower min_segment_size"
            )
        self._check_needs()
        self._check_unbounded()
        if self.throttle is not None:
            self.throttle.check(
                JobOptions(
                    network_memory=self.network_memory,
                    has_credit=self.flow_control is FlowControl.CREDIT,
                    has_checkpoints=self.checkpoint_dir is not None,
                    is_unaligned=self.unaligned,
                    is_batch=self.is_batch,
                    flushes_each_batch=self.buffer_timeout == 0,
                )
            )
        self._check_batch()
        self._check_checkpoint_mode()
        self._check_web()

    def _check_unbounded(self) -> None:
        if self.flow_control is FlowControl.UNBOUNDED:
            for name in ("max_buffers_per_channel", "max_overdraft_buffers_per_gate"):
                if name in self._changed():
                    raise ConfigError(
                        f"{name}={getattr(self, name)} has no effect with flow_control='unbounded', where outputs may "
                        "fill all of network_memory: leave it out"
                    )

    def _check_batch(self) -> None:
        reasons = {
            "checkpoint_dir": "which has no checkpoints, because the output of each operator is in files",
            "debloat": "where operators exchange files and not buffers",
            "checkpoint_timeout": "which has no checkpoints and savepoints",
        }
        for name in self._changed() if self.is_batch else ():
            if name in reasons:
                raise ConfigError(
                    f"{name}={getattr(self, name)} has no effect with execution_mode='batch', {reasons[name]}: "
                    "leave it out"
                )

    def _check_checkpoint_mode(self) -> None:
        if self.unaligned and self.checkpoint_mode == "at-least-once":
            raise ConfigError(
                "unaligned=True has no effect with checkpoint_mode='at-least-once', where no row waits for a barrier: "
                "leave one of the two options out"
            )
        if self.unaligned and self.flow_control is not FlowControl.CREDIT:
            raise ConfigError(
                f"unaligned=True needs flow_control='credit': with {self.flow_control.value!r} no barrier can overtake "
                "the rows before it"
            )
        if self.aligned_timeout and not self.unaligned:
            raise ConfigError(
                f"aligned_timeout={self.aligned_timeout} has no effect without unaligned=True: it is the time after "
                "which an aligned checkpoint becomes unaligned; set both, or leave aligned_timeout out"
            )

    def _check_web(self) -> None:
        for name in ("web_host", "web_token"):
            if self.web_port is None and name in self._changed():
                raise ConfigError(f"{name} has no effect with web_port=None, which serves no page: leave it out")
        if not is_loopback(self.web_host) and self.web_token is None:
            raise ConfigError(
                f"web_host={self.web_host!r} needs web_token, because other machines can reach that address; give a "
                "token, or leave web_host out and use an SSH tunnel (docs/how-to/watch-a-job.md)"
            )

    def without_web(self) -> Config:
        """Return the options for a process that serves no page. The token stays on the driver."""
        return dataclasses.replace(self, web_port=None, web_host=_LOOPBACK, web_token=None)

    @property
    def restarts(self) -> RestartStrategy:
        """The restart strategy of the job. A job without checkpoints does not restart."""
        if self.restart is not None:
            return self.restart
        return restart.none() if self.checkpoint_dir is None else restart.exponential()

    @property
    def validates_batches(self) -> bool:
        """Whether the job checks every received batch completely. With `tls="off"` the job always checks: a batch that
        an attacker has changed could crash the process."""
        return self.paranoid or self.tls == "off"

    @property
    def is_batch(self) -> bool:
        """Whether the job runs in batch mode: a stage starts when its input is complete, in files."""
        return self.execution_mode == "batch"
