"""The mechanisms that the lab compares: their options, and what each one is expected to do.

The expectations were written down before the runs. A miss fails the experiment. The sources are the papers, the code
and the issues of each system; `docs/concepts/mechanisms.md` says more.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import headgate as hg
from headgate.lab.flows import ROW_BYTES
from headgate.lab.mechanisms.bounds import (
    due_at_the_low_mark,
    full_queue,
    rate_is_paid,
    read_asleep,
    read_until_the_next_poll,
    stored,
)
from headgate.lab.mechanisms.overload import Overload
from headgate.lab.zookeeper_server import ZooKeeperServer, zookeeper_server

#: The rows of a batch. A batch is one message: a tuple of Storm and JStorm in these runs.
BATCH: Final = 100
#: Bytes of network memory, and so the most bytes in one input queue, before the division by a factor: 4 times what
#: Storm's queue of 32,768 messages holds. Without a throttle, each message that waits is in a buffer of its own.
GUARD: Final = 2 << 30
SEGMENT: Final = 16 << 10
#: The least bytes of network memory with which a job of the lab can run.
_LEAST_GUARD: Final = 16 << 20


#: What a reaction is about: when the source stops, how many rows are in flight, when the source is free again.
Aspect: TypeAlias = Literal["stops", "in flight", "free"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """The documented sizes and times of a mechanism, before the division by a factor.

    The source stops when between `fills[0]` and `fills[1]` messages wait, at most `stops_after` seconds later. When the
    sink has caught up, the source is free again after at most `resumes_after` seconds. The network buffers of
    Headgate's own flow control are not divided by a factor.
    """

    fills: tuple[float, float]
    stops_after: float = 0.0
    resumes_after: float = 0.0
    is_divided: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a mechanism is expected to do in the experiments. None: nothing is expected, it is only measured."""

    #: Whether an independent stream of the same connection keeps its rate while the other stream stalls.
    keeps_sibling: bool | None
    #: Whether rows are lost, and whether rows are written twice, while a sink stalls or is slow for long.
    loses: bool = False
    doubles: bool = False
    #: Whether the mechanism stops a source whose sink is slow, so that the waiting rows have a limit.
    stops: bool | None = True
    #: How soon, and with how many messages under way. None: the documents do not say.
    reaction: Reaction | None = None
    #: Why the source stops at another time, more rows are in flight, or the source is free later than that.
    explained: Mapping[Aspect, str] = field(default_factory=dict)
    #: How many messages of each stream are in flight at most, also if it is explained why more are than that. None, or
    #: a result of None: nothing is expected.
    bound: Callable[[Overload], float | None] | None = None
    #: After how many seconds of overload the source has stopped, if this follows from the load. None, or a result of
    #: None: nothing is expected.
    stops_by: Callable[[Overload], float | None] | None = None


@dataclass(frozen=True, slots=True)
class Contestant:
    """A mechanism of the lab. `options` returns the options of `hg.Config`, with all sizes divided by a factor."""

    options: Callable[[float], Mapping[str, Any]]
    expected: Expected


def counting(throttle: Any, factor: float) -> Mapping[str, Any]:
    """Return the options of a job with this throttle (None: no throttle), for messages in queues that can grow."""
    return {
        "flow_control": "unbounded",
        "buffer_timeout": 0,
        "segment_size": SEGMENT,
        "network_memory": max(_LEAST_GUARD, round(GUARD / factor)),
        "throttle": throttle,
    }


def _counts(throttle: Callable[[float], Any]) -> Callable[[float], Mapping[str, Any]]:
    """Return `Contestant.options` of a mechanism that counts messages. `throttle` makes its throttle from a factor."""
    return lambda factor: counting(throttle(factor), factor)


def _batch(_factor: float) -> Mapping[str, Any]:
    """Return the options of a job in which a sink begins when its source has ended. Nothing of it is divided."""
    return {"execution_mode": "batch"}


def divided(number: int, factor: float) -> int:
    return max(1, round(number / factor))


def storm_zookeeper(hosts: str, factor: float) -> dict[str, Any]:
    """Return the options of StormZooKeeper: its defaults, divided by the factor. The functions below do the same."""
    times = {"poll": 30 / factor, "znode_update": 15 / factor, "znode_timeout": 30 / factor}
    return {"hosts": hosts, "receive_buffer": divided(1024, factor), **times}


def storm_status(factor: float) -> dict[str, Any]:
    buffers = {"receive_buffer": divided(32768, factor), "transfer_buffer": divided(1000, factor)}
    return {**buffers, "check_interval": 0.05 / factor}


def jstorm_stages(factor: float) -> dict[str, Any]:
    return {"receive_buffer": divided(256, factor), "sender_cache": divided(64 << 10, factor)}


def jstorm_master(factor: float) -> dict[str, Any]:
    return {"receive_buffer": divided(1024, factor), "check_interval": 0.5 / factor}


def heron_spout(factor: float) -> dict[str, Any]:
    return {"high": divided(100 << 20, factor), "low": divided(50 << 20, factor)}


def zookeeper() -> ZooKeeperServer:
    """Return a ZooKeeper that runs until the program ends. Any thread may call this."""
    with _starting:
        return _zookeeper()


_starting: Final = threading.Lock()


@functools.cache
def _zookeeper() -> ZooKeeperServer:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(zookeeper_server())


T = hg.throttle
_SLEEPS: Final = "no source stops: it sleeps longer and longer after each message, so that rows still come"
_BEHIND: Final = (
    "a source that has stood is behind its schedule: when it may go on, it reads all that is due at several times its "
    "rate until it is stopped again, and the time that a signal takes is not divided"
)
#: The messages of 100 rows that the buffers of one channel hold with credit: 10 and 5 overdraft buffers of the output,
#: 2 exclusive and 8 floating buffers of the input. And those that the kernel's socket buffers hold at most, by Linux's
#: usual limits: 4 MB for sending and 6 MB for receiving.
_BUFFERS: Final = 25 * (32 << 10) / (BATCH * ROW_BYTES)
_SOCKETS: Final = 10e6 / (BATCH * ROW_BYTES)
#: The messages that Heron's 100 MB hold. Serialised messages are up to 15 % larger than their rows.
_HERON: Final = (100 << 20) / (BATCH * ROW_BYTES)
CONTESTANTS: Final[dict[str, Contestant]] = {
    "credit": Contestant(
        lambda factor: {"buffer_timeout": 0},
        Expected(keeps_sibling=True, reaction=Reaction(fills=(0, _BUFFERS), is_divided=False)),
    ),
    "tcp": Contestant(
        lambda factor: {"flow_control": "tcp", "buffer_timeout": 0},
        Expected(keeps_sibling=False, reaction=Reaction(fills=(0, _BUFFERS + _SOCKETS), is_divided=False)),
    ),
    "unbounded": Contestant(_counts(lambda factor: None), Expected(keeps_sibling=True, stops=False)),
    "batch": Contestant(_batch, Expected(keeps_sibling=False, stops=False)),
    #: A rate has no default. This one is above what a sink of the lab takes, so it cannot protect that sink.
    "fixed-rate": Contestant(_counts(lambda factor: T.FixedRate(25_000)), Expected(keeps_sibling=True, stops=False)),
    "max-pending": Contestant(
        _counts(lambda factor: T.MaxPending(divided(1000, factor), timeout=30 / factor)),
        Expected(keeps_sibling=True, doubles=True, reaction=Reaction(fills=(1000, 1000), resumes_after=30)),
    ),
    "max-pending-no-acks": Contestant(
        _counts(lambda factor: T.MaxPending(divided(1000, factor), acking=False)),
        Expected(keeps_sibling=True, stops=False),
    ),
    "storm-zk": Contestant(
        _counts(lambda factor: T.StormZooKeeper(**storm_zookeeper(zookeeper().address, factor))),
        Expected(
            keeps_sibling=False,
            reaction=Reaction(fills=(0.9 * 1024, 0.9 * 1024), stops_after=0.1, resumes_after=0.1),
            explained={"in flight": _BEHIND},
            bound=full_queue,
        ),
    ),
    #: Sources see a new time in a node at a poll only. It counts for the timeout; the next poll sees that it is old.
    "storm-zk-1.2": Contestant(
        _counts(lambda factor: T.StormZooKeeper(**storm_zookeeper(zookeeper().address, factor), version="1.2")),
        Expected(
            keeps_sibling=False,
            reaction=Reaction(fills=(0.9 * 1024, 0.9 * 1024), stops_after=0.1, resumes_after=60),
            explained={"in flight": _BEHIND},
            bound=read_until_the_next_poll,
        ),
    ),
    "storm-status": Contestant(
        _counts(lambda factor: T.StormStatus(**storm_status(factor))),
        Expected(keeps_sibling=True, reaction=Reaction(fills=(32768, 32768 + 1000), resumes_after=0.05)),
    ),
    "jstorm-stages": Contestant(
        _counts(lambda factor: T.JStormStages(**jstorm_stages(factor))),
        Expected(keeps_sibling=True, reaction=Reaction(fills=(0.8 * 256, 0.8 * 256 + 64))),
    ),
    "jstorm-master": Contestant(
        _counts(lambda factor: T.JStormMaster(**jstorm_master(factor))),
        Expected(
            keeps_sibling=False,
            reaction=Reaction(fills=(0.8 * 1024, 1024), stops_after=4, resumes_after=20),
            explained={"in flight": _SLEEPS},
            bound=read_asleep,
        ),
    ),
    "heron": Contestant(
        _counts(lambda factor: T.HeronSpout(**heron_spout(factor))),
        Expected(
            keeps_sibling=False,
            reaction=Reaction(fills=(0.85 * _HERON, _HERON), stops_after=0.1, resumes_after=0.1),
            explained={"in flight": _BEHIND},
            bound=functools.partial(due_at_the_low_mark, mark=_HERON),
        ),
    ),
    #: The documents give no time until the source is free. Once batches wait for five intervals, the rate is the least
    #: one. Then batches are small, and their fixed costs let the controller find a rate that is too low.
    "spark-pid": Contestant(
        _counts(lambda factor: T.SparkPid(batch_interval=2 / factor, min_rate=100 * factor)),
        Expected(
            keeps_sibling=None,
            stops=None,
            bound=functools.partial(stored, least=100 / BATCH),
            stops_by=functools.partial(rate_is_paid, least=100 / BATCH),
        ),
    ),
    "shed": Contestant(
        _counts(lambda factor: T.Shed(divided(1000, factor))),
        Expected(keeps_sibling=True, loses=True, stops=False, reaction=Reaction(fills=(1000, 1000))),
    ),
    "shed-oldest": Contestant(
        _counts(lambda factor: T.Shed(divided(1000, factor), drop="oldest")),
        Expected(keeps_sibling=True, loses=True, stops=False, reaction=Reaction(fills=(1000, 1000))),
    ),
    #: Both limits hold, and credit's buffers are full first, or at the same time.
    "max-pending-over-credit": Contestant(
        lambda factor: {
            "buffer_timeout": 0,
            "throttle": T.MaxPending(divided(1000, factor), timeout=30 / factor, over_credit=True),
        },
        Expected(keeps_sibling=True, doubles=True, reaction=Reaction(fills=(0, 1000), resumes_after=30)),
    ),
}
#: The mechanisms that can be simulated: the others need a server, or stages that run one after the other.
SIMULATED: Final = tuple(name for name in CONTESTANTS if name not in {"storm-zk", "storm-zk-1.2", "batch"})
