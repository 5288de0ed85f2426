"""All options of a job: one frozen dataclass, from which `docs/reference/options.md` is written (`scripts/docs.py`).

Numbers are bytes and seconds; strings carry units ("32 kb" is 32 x 1024 bytes, "100 ms"); `timedelta` is fine.
Names are Flink's, in snake_case.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal

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
    WHOLE,
    member_of,
    one_of,
    or_none,
)
from headgate.options import option, option_of
from headgate.restart import RestartStrategy


class FlowControl(enum.StrEnum):
    """What keeps a producer from sending more than its consumers take; see `docs/concepts/exchange.md`."""

    CREDIT = "credit"
    TCP = "tcp"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of one job; see `docs/reference/options.md`. Raises ConfigError for an unknown or impossible value."""

    segment_size: int = option(32 << 10, SIZE, "Size of one network buffer, 512 B to 1 MiB.", least=512, most=1 << 20)
    message_size: int = option(
        128 << 10,
        SIZE,
        "Rows are sent in messages of about this size; a channel gathers that much before it sends.",
        least=1,
    )
    flow_control: FlowControl = option(
        FlowControl.CREDIT,
        member_of(FlowControl),
        "What holds a producer back: `credit` counts the free buffers of each channel; `tcp` stops reading a "
        "connection when an input has none, as Flink did before 1.5, and `unbounded` lets queues grow into "
        "all of `network_memory` and then ends the job, both for comparison (docs/concepts/exchange.md).",
    )
    connections_per_pair: int = option(
        1,
        WHOLE,
        "TCP connections over which the channels from one TaskManager to another are distributed.",
        unit="connections",
        least=1,
    )
    request_backoff_initial: float = option(
        0.1,
        DURATION,
        "How long a consumer waits before it asks again for a result that is not there yet; the wait doubles "
        "each time.",
        above=0,
    )
    request_backoff_max: float = option(
        10.0, DURATION, "The longest such wait; after it, a result that is still not there is an error."
    )
    network_memory: int = option(64 << 20, SIZE, "Memory for network buffers in each TaskManager.")
    buffers_per_channel: int = option(
        2,
        WHOLE,
        "Buffers that belong to one input channel alone; with 0 its producer announces what waits, and it "
        "shares the floating ones.",
        unit="buffers",
        least=0,
    )
    floating_buffers_per_gate: int = option(
        8,
        WHOLE,
        "Buffers that the channels of one input share, given to those with a backlog; one that is alone keeps "
        "all, and several share half of them also without.",
        unit="buffers",
        least=1,
    )
    max_buffers_per_channel: int = option(
        10,
        WHOLE,
        "Most buffers that may wait in one output channel; refused with `unbounded`, where there is no such limit.",
        unit="buffers",
        least=1,
    )
    max_overdraft_buffers_per_gate: int = option(
        5,
        WHOLE,
        "Buffers that an output may take beyond its pool when one batch makes many; until they are back, no "
        "new batch is taken; refused with `unbounded`, where the pool may take all there are.",
        unit="buffers",
        least=0,
    )
    buffer_timeout: float | Literal["adaptive"] = option(
        0.1,
        BUFFER_TIMEOUT,
        "How long rows may wait for their message to fill; 0 sends after every batch, -1 only when full, "
        '`"adaptive"` as soon as the reader has nothing left; batch mode sends only when full, whatever it '
        "is.",
    )
    watermark_interval: float = option(
        0.2,
        DURATION,
        "How often a watermark travels alone on a channel that has no rows; in batch mode the only one is "
        "that of the end.",
        least=0,
    )
    latency_interval: float = option(0.0, DURATION, "How often each source sends a latency marker; 0: none.", least=0)
    max_parallelism: int | None = option(
        None,
        or_none(WHOLE),
        "Number of key groups, and so the largest parallelism, up to 32768; none: chosen from the parallelism.",
        unit="subtasks",
        least=1,
        most=32768,
    )
    slots_per_task: int = option(1, WHOLE, "Subtasks of one operator that one Spark task runs.", unit="slots", least=1)
    slots_timeout: float = option(
        10.0,
        DURATION,
        "How long to wait for enough free slots before the job is refused, or a restart of it is tried again.",
        least=0,
    )
    registration_timeout: float = option(
        60.0,
        DURATION,
        "How long TaskManagers may take from their launch until all have registered with the driver: it is "
        "for Python processes to start in.",
        above=0,
    )
    heartbeat_timeout: float = option(50.0, DURATION, "A TaskManager that is silent for so long is lost.", above=0)
    bind_host: str | None = option(
        None,
        or_none(HOST),
        "Address that the driver and TaskManagers listen on (`0.0.0.0` is all of a machine's); none: loopback "
        "on local masters, else the one Spark reports.",
    )
    port_range: tuple[int, int] | None = option(
        None,
        or_none(PORTS),
        "First and last port to listen on, one for the driver and one for each TaskManager of a machine; "
        "none: any free one.",
        unit="ports",
    )
    tls: Literal["auto", "on", "off"] = option(
        "auto",
        one_of("auto", "on", "off"),
        "Whether links between the job's processes are encrypted with TLS 1.3 (docs/concepts/security.md): "
        '`"auto"` where the driver listens on another address than loopback, `"on"` on loopback too, `"off"` '
        "never: the start logs a warning, and every batch is validated as with `paranoid`.",
    )
    spill_dir: str | None = option(
        None,
        or_none(PATH),
        "Folder for data that goes through files: DataFrames, so that all executors have to reach it, "
        "messages above 5 MiB while they are received, what operators hand on in batch mode, and without "
        "credit what comes behind a barrier (these three only if it is no URI); none: the machine's temporary "
        "folder. A URI must not hold credentials.",
    )
    execution_mode: Literal["streaming", "batch"] = option(
        "streaming",
        one_of("streaming", "batch"),
        '`"streaming"`: all operators run at once and rows flow between them; `"batch"`: an operator behind '
        "an exchange starts when all before it have finished, and reads what they wrote to files; for sources "
        "that end.",
    )
    batch_shuffle_compression: bool = option(
        True, FLAG, "In batch mode, compress with LZ4 each buffer that this makes smaller."
    )
    paranoid: bool = option(False, FLAG, "Check every message in full after it was decoded: slow, for finding faults.")
    debloat: bool = option(
        False,
        FLAG,
        "Make buffers smaller where a reader is slow, so that what is in flight is `debloat_target` seconds "
        "of its work; refused in batch mode, where a reader comes when all is written.",
    )
    debloat_target: float = option(
        1.0, DURATION, "How long a reader should need for what is on its way to it.", above=0, needs="debloat"
    )
    debloat_period: float = option(0.2, DURATION, "How often its throughput is measured.", above=0, needs="debloat")
    debloat_samples: int = option(
        20, WHOLE, "How many measurements the buffer size is smoothed over.", unit="samples", least=1, needs="debloat"
    )
    debloat_threshold_percentages: int = option(
        25,
        WHOLE,
        "How much the size has to change before producers are told.",
        unit="percent",
        least=0,
        needs="debloat",
    )
    min_segment_size: int = option(256, SIZE, "The least that debloating leaves of a buffer.", least=1, needs="debloat")
    max_state_memory: int | None = option(
        None,
        or_none(SIZE),
        "The most that the operators of a TaskManager may hold together (their `state_bytes`, see "
        "docs/reference/metrics.md); when it is more the job fails with the name of the operator that holds "
        "the most, and is not started again. None: as much as the machine has.",
        above=0,
    )
    checkpoint_dir: str | None = option(
        None,
        or_none(PATH),
        "Folder or URI where the job's checkpoints are kept, which all machines of the job must reach; none: "
        "no checkpoints, and a failure ends the job. A URI must not hold credentials.",
    )
    checkpoint_interval: float = option(
        10.0, DURATION, "How often a checkpoint begins.", above=0, needs="checkpoint_dir"
    )
    checkpoint_timeout: float = option(
        600.0,
        DURATION,
        "A checkpoint or savepoint of which the metadata is not stored by then is given up; what sinks commit "
        "after that may take longer. Refused in batch mode, which has none.",
        above=0,
    )
    checkpoint_min_pause: float = option(
        0.0,
        DURATION,
        "The least time from the end of one checkpoint to the begin of the next.",
        least=0,
        needs="checkpoint_dir",
    )
    tolerable_failed_checkpoints: int = option(
        0,
        WHOLE,
        "How many may fail one after the other before the job starts again from the last that did not.",
        unit="checkpoints",
        least=0,
        needs="checkpoint_dir",
    )
    checkpoint_mode: Literal["exactly-once", "at-least-once"] = option(
        "exactly-once",
        one_of("exactly-once", "at-least-once"),
        '`"exactly-once"`, or `"at-least-once"`: no channel waits for the barriers of others, and after a '
        "restart rows may count twice.",
        needs="checkpoint_dir",
    )
    unaligned: bool = option(
        False,
        FLAG,
        "Barriers overtake the rows that are queued, and these are part of the checkpoint, so that it need "
        'not wait for them; only with `flow_control="credit"` (docs/concepts/checkpoints.md).',
        needs="checkpoint_dir",
    )
    aligned_timeout: float = option(
        0.0,
        DURATION,
        "With `unaligned`, how long a checkpoint tries to go without that first; 0: not at all.",
        least=0,
        needs="checkpoint_dir",
    )
    restart: RestartStrategy | None = option(
        None,
        or_none(STRATEGY),
        "What to do when a job with checkpoints fails: `hg.restart.exponential()`, which it is if none is "
        "given, `.fixed(attempts, delay)`, `.failure_rate(max_failures, interval)` or `.none()`.",
        needs="checkpoint_dir",
    )

    def __init__(self, **options: Any) -> None:
        declared = {field.name: field for field in dataclasses.fields(Config)}
        for name in options:
            if name not in declared:
                near = "".join(f" (did you mean {near}?)" for near in get_close_matches(name, declared, 1))
                raise ConfigError(f"unknown option {name!r}{near}; known options: {', '.join(declared)}")
        for name, field in declared.items():
            value = option_of(field).parse(name, options[name]) if name in options else field.default
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        """What values must be beside others, and that no option is taken that would do nothing."""
        if self.network_memory < self.segment_size:
            raise ConfigError(
                f"network_memory={self.network_memory} is impossible: it must be at least "
                f"segment_size={self.segment_size}"
            )
        if self.request_backoff_max < self.request_backoff_initial:
            raise ConfigError("request_backoff_max must be at least request_backoff_initial")
        if self.debloat and self.min_segment_size > self.segment_size:
            raise ConfigError(
                f"min_segment_size={self.min_segment_size} is above segment_size={self.segment_size}: no buffer could "
                "be made smaller"
            )
        self._check_needs()
        self._check_unbounded()
        self._check_batch()
        self._check_checkpoint_mode()

    def _check_needs(self) -> None:
        for name in self._changed():
            needed = option_of(_FIELDS[name]).needs
            if needed is not None and not getattr(self, needed):
                given = f"{needed}=True: give that" if getattr(self, needed) is False else f"{needed}: give one"
                raise ConfigError(f"{name} has no effect without {given}, or leave it out")

    def _changed(self) -> list[str]:
        """The options that are not as they are by default."""
        return [name for name, field in _FIELDS.items() if getattr(self, name) != field.default]

    def _check_unbounded(self) -> None:
        if self.flow_control is FlowControl.UNBOUNDED:
            for name in ("max_buffers_per_channel", "max_overdraft_buffers_per_gate"):
                if name in self._changed():
                    raise ConfigError(
                        f"{name}={getattr(self, name)} has no effect with flow_control='unbounded', where outputs grow "
                        "into all of network_memory: leave it out"
                    )

    def _check_batch(self) -> None:
        reasons = {
            "checkpoint_dir": "where an operator begins when those before it have ended",
            "debloat": "where nothing waits in buffers between operators",
            "checkpoint_timeout": "in which there are no checkpoints and savepoints",
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
                "leave one of them out"
            )
        if self.unaligned and self.flow_control is not FlowControl.CREDIT:
            raise ConfigError(
                f"unaligned=True needs flow_control='credit': with {self.flow_control.value!r} no barrier overtakes "
                "what is before it"
            )
        if self.aligned_timeout and not self.unaligned:
            raise ConfigError(
                "aligned_timeout has no effect without unaligned=True, with which a checkpoint begins aligned and "
                "turns unaligned when that takes longer"
            )

    @property
    def restarts(self) -> RestartStrategy:
        """What is done when the job fails: with checkpoints it starts again, unless something else was asked for."""
        if self.restart is not None:
            return self.restart
        return restart.none() if self.checkpoint_dir is None else restart.exponential()

    @property
    def validates_batches(self) -> bool:
        """Whether every batch that was received is checked in full: where nothing else protects it, damage on purpose
        would crash the process."""
        return self.paranoid or self.tls == "off"

    @property
    def is_batch(self) -> bool:
        """Whether stages run one after the other, with files in between."""
        return self.execution_mode == "batch"


_FIELDS: Final = {field.name: field for field in dataclasses.fields(Config)}
