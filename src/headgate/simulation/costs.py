"""How long work takes in a simulation, and what the lines between its TaskManagers carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headgate.errors import ConfigError
from headgate.throttle.validation import number_or_nan
from headgate.transport.sockets import SOCKET_BUFFER


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """How long the work of a simulated job takes, in seconds.

    The defaults are rounded from the exchange benchmarks on two cores. `rows` has the time per row of operators,
    sources and sinks, by their names in the plan. A node without an entry takes no time for its rows. Each duration is
    multiplied by a random number between 1 - `jitter` and 1 + `jitter`, which depends on the seed.

    Raises ConfigError for a time that is negative, or a jitter that is not from 0 to 1.

    >>> Costs(rows={"map": 1e-6}).rows["map"]
    1e-06
    """

    #: One turn of a task, without the work of its operators.
    task_turn: float = 20e-6
    #: One turn of a network thread: it wakes up and looks at its sockets.
    network_turn: float = 20e-6
    #: To split and to encode one batch for an exchange.
    batch: float = 50e-6
    #: To copy one byte into a socket or out of it.
    byte: float = 0.15e-9
    rows: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    jitter: float = 0.1

    def __post_init__(self) -> None:
        times = {"task_turn": self.task_turn, "network_turn": self.network_turn, "batch": self.batch, "byte": self.byte}
        for name, value in [*times.items(), *self.rows.items()]:
            if not number_or_nan(value) >= 0:
                raise ConfigError(f"Costs: {name}={value!r} must be a time in seconds, 0 or more")
        if not self.task_turn or not self.network_turn:
            raise ConfigError("Costs: task_turn and network_turn must be above 0, or virtual time would stand")
        if not 0 <= number_or_nan(self.jitter) <= 1:
            raise ConfigError(f"Costs: jitter={self.jitter!r} must be from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The connection between two TaskManagers, in each direction.

    `latency` is the time of a byte on the way in seconds. `bytes_per_s` is what the line carries. `buffer` is the size
    of the kernel's buffer at each end in bytes; the kernel doubles the size that a program asks for.

    Raises ConfigError unless `bytes_per_s` and `buffer` are above 0 and `latency` is 0 or more.

    >>> Line(latency=0.001).latency
    0.001
    """

    latency: float = 20e-6
    bytes_per_s: float = 5e9
    buffer: int = 2 * SOCKET_BUFFER

    def __post_init__(self) -> None:
        latency, bytes_per_s, buffer = map(number_or_nan, (self.latency, self.bytes_per_s, self.buffer))
        if not (latency >= 0 and bytes_per_s > 0 and buffer > 0):
            raise ConfigError(f"{self}: latency must be 0 or more, bytes_per_s and buffer must be numbers above 0")
