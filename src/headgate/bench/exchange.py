"""`exchange`: payload bytes/s of one channel between two processes, beside what bare loopback TCP gives here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from headgate.bench.child import ChildProcess
from headgate.bench.exchange_pair import prebuilt_batch
from headgate.bench.options import Options
from headgate.bench.raw_baseline import payload_rate
from headgate.bench.report import CaseResult, Figure, ratios

TARGET = 0.4
#: Up to 64 buffers for the channel, so that the figure is the path's and not the round trip's; and the defaults, 2 + 8.
MANY_BUFFERS = {"buffers_per_channel": 2, "floating_buffers_per_gate": 62, "max_buffers_per_channel": 64}
DEFAULT_BUFFERS: dict[str, int] = {}

_TIMEOUT = 120.0


def run(options: Options) -> CaseResult:
    """Rounds of: best of three raw runs, 64 buffers, default buffers."""
    volume = (256 << 20) if options.quick else (2 << 30)
    raw, many, default = [], [], []
    with end("producer", 0) as producer, end("consumer", 1) as consumer:
        for number in range(2 if options.quick else 5):
            options.say(f"exchange: round {number + 1}")
            raw.append(max(payload_rate(volume) for _ in range(3)))
            many.append(rate(producer, consumer, volume, MANY_BUFFERS))
            default.append(rate(producer, consumer, volume, DEFAULT_BUFFERS))
    figures = (
        Figure("64 buffers", "B/s", tuple(many)),
        Figure("2 + 8 buffers", "B/s", tuple(default)),
        Figure("raw loopback, best of 3", "B/s", tuple(raw)),
        Figure("64 buffers / raw", "", ratios(many, raw)),
        Figure("2 + 8 buffers / raw", "", ratios(default, raw)),
    )
    met = figures[3].median >= TARGET
    return CaseResult("exchange", f"64 buffers / raw at least {TARGET}", met, figures, {"volume": volume})


def end(name: str, rank: int) -> ChildProcess:
    """A process at one end of the channel, on its own cores; see `exchange_pair`."""
    return ChildProcess(f"exchange {name}", [sys.executable, "-m", "headgate.bench.exchange_pair", str(rank)])


def rate(producer: ChildProcess, consumer: ChildProcess, volume: int, config: Mapping[str, Any]) -> float:
    """Payload bytes/s from `emit` to the decoded batch."""
    batches = volume // prebuilt_batch().nbytes
    port = producer.ask({"do": "listen", "config": dict(config), "batches": batches}, _TIMEOUT)["port"]
    took = consumer.ask({"do": "consume", "config": dict(config), "port": port}, _TIMEOUT)
    producer.ask({"do": "result"}, _TIMEOUT)
    return float(took["bytes"] / took["seconds"])
