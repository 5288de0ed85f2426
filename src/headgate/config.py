"""All options of a job: one frozen dataclass. `docs/configuration.md` has the same table for people.

Numbers are bytes and seconds; strings carry units ("32 kb" is 32 x 1024 bytes, "100 ms"); `timedelta` is fine.
Names are Flink's, in snake_case.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from headgate import restart
from headgate.errors import ConfigError
from headgate.quantities import seconds, size
from headgate.redaction import has_credentials, redacted
from headgate.restart import RestartStrategy


class FlowControl(enum.StrEnum):
    """What keeps a producer from sending more than its consumers take; see `docs/exchange.md`."""

    CREDIT = "credit"
    TCP = "tcp"
    UNBOUNDED = "unbounded"


def _flow_control(value: object) -> FlowControl:
    try:
        return FlowControl(value)  # type: ignore[arg-type]
    except ValueError:
        raise ConfigError(f"{value!r} is none of {', '.join(repr(each.value) for each in FlowControl)}") from None


@dataclass(frozen=True, slots=True)
class Config:
    """Options of one job; see `docs/configuration.md`. Raises ConfigError for an unknown or impossible value."""

    segment_size: int = 32 << 10
    message_size: int = 128 << 10
    flow_control: FlowControl = FlowControl.CREDIT
    connections_per_pair: int = 1
    request_backoff_initial: float = 0.1
    request_backoff_max: float = 10.0
    network_memory: int = 64 << 20
    buffers_per_channel: int = 2
    floating_buffers_per_gate: int = 8
    max_buffers_per_channel: int = 10
    max_overdraft_buffers_per_gate: int = 5
    buffer_timeout: float | Literal["adaptive"] = 0.1
    watermark_interval: float = 0.2
    latency_interval: float = 0.0
    max_parallelism: int | None = None
    slots_per_task: int = 1
    slots_timeout: float = 10.0
    registration_timeout: float = 60.0
    heartbeat_timeout: float = 50.0
    bind_host: str | None = None
    port_range: tuple[int, int] | None = None
    tls: Literal["auto", "on", "off"] = "auto"
    spill_dir: str | None = None
    execution_mode: Literal["streaming", "batch"] = "streaming"
    batch_shuffle_compression: bool = True
    paranoid: bool = False
    debloat: bool = False
    debloat_target: float = 1.0
    debloat_period: float = 0.2
    debloat_samples: int = 20
    debloat_threshold_percentages: int = 25
    min_segment_size: int = 256
    max_state_memory: int | None = None
    checkpoint_dir: str | None = None
    checkpoint_interval: float = 10.0
    checkpoint_timeout: float = 600.0
    checkpoint_min_pause: float = 0.0
    tolerable_failed_checkpoints: int = 0
    checkpoint_mode: Literal["exactly-once", "at-least-once"] = "exactly-once"
    unaligned: bool = False
    aligned_timeout: float = 0.0
    restart: RestartStrategy | None = None

    def __init__(self, **options: Any) -> None:
        known = _defaults()
        unknown = sorted(set(options) - set(known))
        if unknown:
            near = "".join(f" (did you mean {name}?)" for name in get_close_matches(unknown[0], known, 1))
            raise ConfigError(f"unknown option {unknown[0]!r}{near}; known options: {', '.join(known)}")
        for name, value in {**known, **options}.items():
            try:
                object.__setattr__(self, name, _PARSERS.get(name, _same)(value))
            except ConfigError as error:
                raise ConfigError(f"option {name}: {error.message}") from None
        self._check()

    def _check(self) -> None:
        at_least = {"message_size": 1, "network_memory": self.segment_size, "buffers_per_channel": 0,
                    "connections_per_pair": 1,
                    "floating_buffers_per_gate": 1, "max_buffers_per_channel": 1, "max_overdraft_buffers_per_gate": 0,
                    "slots_per_task": 1, "watermark_interval": 0, "latency_interval": 0,
                    "slots_timeout": 0, "debloat_samples": 1, "debloat_threshold_percentages": 0,
                    "min_segment_size": 1, "checkpoint_min_pause": 0,
                    "tolerable_failed_checkpoints": 0, "aligned_timeout": 0}  # fmt: skip
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} is impossible: it must be at least {least}")
        if not 512 <= self.segment_size <= 1 << 20:
            raise ConfigError(f"segment_size={self.segment_size} is impossible: it must be from 512 bytes to 1 MiB")
        if self.buffer_timeout != "adaptive" and self.buffer_timeout < 0 and self.buffer_timeout != -1:
            raise ConfigError(
                'buffer_timeout must be a duration, 0 (flush every batch), -1 (only when full) or "adaptive" (when the '
                "reader has nothing left)"
            )
        for name in (
            "registration_timeout",
            "heartbeat_timeout",
            "debloat_target",
            "debloat_period",
            "request_backoff_initial",
            "checkpoint_interval",
            "checkpoint_timeout",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0")
        if self.request_backoff_max < self.request_backoff_initial:
            raise ConfigError("request_backoff_max must be at least request_backoff_initial")
        if self.execution_mode not in ("streaming", "batch"):
            raise ConfigError(f'execution_mode={self.execution_mode!r} is unknown: it must be "streaming" or "batch"')
        if self.tls not in ("auto", "on", "off"):
            raise ConfigError(f'tls={self.tls!r} is unknown: it must be "auto", "on" or "off"')
        if self.max_parallelism is not None and not 1 <= self.max_parallelism <= 32768:
            raise ConfigError(f"max_parallelism={self.max_parallelism} is impossible: it must be from 1 to 32768")
        if self.port_range is not None and not 0 < self.port_range[0] <= self.port_range[1] < 65536:
            raise ConfigError(f"port_range={self.port_range} is impossible: it must be (first, last), 1 to 65535")
        self._check_effect()

    def _check_effect(self) -> None:
        """No option is taken that would do nothing in the chosen mode."""
        if self.flow_control is FlowControl.UNBOUNDED:
            defaults = _defaults()
            for name in ("max_buffers_per_channel", "max_overdraft_buffers_per_gate"):
                if getattr(self, name) != defaults[name]:
                    raise ConfigError(
                        f"{name}={getattr(self, name)} has no effect with flow_control='unbounded', where outputs grow "
                        "into all of network_memory: leave it out"
                    )
        self._check_checkpoints()
        self._check_debloating()
        if self.is_batch and self.debloat:
            raise ConfigError(
                "debloat=True has no effect with execution_mode='batch', where nothing waits in buffers between "
                "operators: leave it out"
            )
        if self.is_batch and self.checkpoint_timeout != _defaults()["checkpoint_timeout"]:
            raise ConfigError(
                f"checkpoint_timeout={self.checkpoint_timeout} has no effect with execution_mode='batch', in which "
                "there are no checkpoints and savepoints: leave it out"
            )

    def _check_debloating(self) -> None:
        defaults = _defaults()
        for name in () if self.debloat else _OF_DEBLOATING:
            if getattr(self, name) != defaults[name]:
                raise ConfigError(f"{name} has no effect without debloat=True: give that, or leave it out")
        if self.debloat and self.min_segment_size > self.segment_size:
            raise ConfigError(
                f"min_segment_size={self.min_segment_size} is above segment_size={self.segment_size}: no buffer could "
                "be made smaller"
            )

    def _check_checkpoints(self) -> None:
        if self.checkpoint_dir is None:
            defaults = _defaults()
            for name in _OF_CHECKPOINTS:
                if getattr(self, name) != defaults[name]:
                    raise ConfigError(f"{name} has no effect without checkpoint_dir: give one, or leave it out")
        elif self.is_batch:
            raise ConfigError(
                "checkpoint_dir has no effect with execution_mode='batch', where an operator begins when those before "
                "it have ended: leave it out"
            )
        if self.checkpoint_mode not in ("exactly-once", "at-least-once"):
            raise ConfigError(
                f'checkpoint_mode={self.checkpoint_mode!r} is unknown: it must be "exactly-once" or "at-least-once"'
            )
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


#: Options that are about checkpoints alone, and not about savepoints.
_OF_CHECKPOINTS = (
    "checkpoint_interval", "checkpoint_min_pause", "tolerable_failed_checkpoints", "checkpoint_mode", "unaligned",
    "aligned_timeout", "restart",
)  # fmt: skip


_OF_DEBLOATING = (
    "debloat_target", "debloat_period", "debloat_samples", "debloat_threshold_percentages", "min_segment_size",
)  # fmt: skip


def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(Config)}


def _same(value: Any) -> Any:
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{value!r} is not a whole number")
    return value


def _timeout(value: object) -> float | str:
    try:
        return "adaptive" if value == "adaptive" else seconds(value)
    except ConfigError as error:
        raise ConfigError(f'{error.message}; or "adaptive", 0 (after every batch) or -1 (only when full)') from None


def _optional_whole(value: object) -> int | None:
    return None if value is None else _whole(value)


def _optional_size(value: object) -> int | None:
    found = None if value is None else size(value)
    if found is not None and found <= 0:
        raise ConfigError(f"{value!r} is impossible: it must be above 0")
    return found


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} must be True or False")
    return value


def _restart(value: object) -> RestartStrategy | None:
    if value is not None and not isinstance(value, RestartStrategy):
        raise ConfigError(f"{value!r} is no restart strategy; see hg.restart, for example hg.restart.fixed(3)")
    return value


def _path(value: object) -> str | None:
    if value is not None and not isinstance(value, (str, Path)):
        raise ConfigError(f"{value!r} is not a path")
    if value is None or "://" in str(value):
        return None if value is None else refuse_credentials(str(value))
    return os.path.abspath(os.path.expanduser(value))  # the driver's, wherever it is used


def refuse_credentials(uri: str) -> str:
    """The URI. Raises ConfigError if it holds a password, a key or a token: it is stored in checkpoints, sent to all
    machines, and shown in errors and reports."""
    if has_credentials(uri):
        raise ConfigError(
            f"{redacted(uri)}: holds credentials, which would be stored in checkpoints and shown in errors; leave them "
            "out, and set them in the environment of all machines (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "GOOGLE_APPLICATION_CREDENTIALS, a Kerberos ticket), or rely on the provider's role for them"
        )
    return uri


def _host(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{value!r} is not the name or address of a machine")
    return value


def _ports(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ConfigError(f"{value!r} must be (first, last)")
    return _whole(value[0]), _whole(value[1])


_PARSERS: dict[str, Any] = {
    **dict.fromkeys(("segment_size", "message_size", "network_memory", "min_segment_size"), size),
    **dict.fromkeys(("watermark_interval", "latency_interval", "slots_timeout", "registration_timeout",
                     "heartbeat_timeout", "debloat_target", "debloat_period", "request_backoff_initial",
                     "request_backoff_max", "checkpoint_interval", "checkpoint_timeout",
                     "checkpoint_min_pause", "aligned_timeout"), seconds),
    **dict.fromkeys(("buffers_per_channel", "floating_buffers_per_gate", "max_buffers_per_channel",
                     "max_overdraft_buffers_per_gate", "connections_per_pair", "slots_per_task", "debloat_samples",
                     "debloat_threshold_percentages", "tolerable_failed_checkpoints"), _whole),
    "max_state_memory": _optional_size, "buffer_timeout": _timeout, "flow_control": _flow_control,
    "max_parallelism": _optional_whole, "bind_host": _host, "port_range": _ports, "spill_dir": _path,
    "checkpoint_dir": _path, "restart": _restart,
    "paranoid": _flag,
    "unaligned": _flag, "debloat": _flag, "batch_shuffle_compression": _flag,
}  # fmt: skip
