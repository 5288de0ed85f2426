"""`exchange`: payload bytes/s between two processes, compared with bare loopback TCP on the same machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildProcess
from headgate.bench.exchange_pair import prebuilt_batch
from headgate.bench.raw_baseline import payload_rate
from headgate.bench.report import CaseResult, Figure, ratios
from headgate.runtime.master import certificates

#: The shares of the raw rate that are the targets: over one channel, and over a hundred channels.
ONE_TARGET = 0.6
HUNDRED_TARGET = 0.5
#: Up to 64 buffers for the channel: so many that the round trip does not limit the rate. `DEFAULT_BUFFERS` are 2
#: exclusive and 8 floating buffers.
MANY_BUFFERS = {"buffers_per_channel": 2, "floating_buffers_per_gate": 62, "max_buffers_per_channel": 64}
DEFAULT_BUFFERS: dict[str, int] = {}
#: Fewer and larger buffers, because Python has a cost for each buffer.
LARGE_BUFFERS = {
    "segment_size": 1 << 20,
    "buffers_per_channel": 2,
    "floating_buffers_per_gate": 2,
    "max_buffers_per_channel": 4,
}
#: Buffers for many channels. A message holds two batches of the case. An end has 8.5 MB of buffers for 100 channels.
MIDDLE_BUFFERS = {
    "segment_size": 64 << 10,
    "message_size": 384 << 10,
    "buffers_per_channel": 1,
    "floating_buffers_per_gate": 30,
    "max_buffers_per_channel": 8,
}
HUNDRED = 100

_TIMEOUT = 120.0


def run(options: Options) -> CaseResult:
    """Measure in rounds: the best of three raw runs, then the exchange with each configuration."""
    volume = (256 << 20) if options.quick else (2 << 30)
    with end("producer", 0) as producer, end("consumer", 1) as consumer:

        def through(config: Mapping[str, Any], part: int = 1, **shape: Any) -> float:
            return rate(producer, consumer, volume // part, config, **shape)

        ways: dict[str, Callable[[], float]] = {
            "raw loopback, best of 3": lambda: max(payload_rate(volume) for _ in range(3)),
            "64 buffers": lambda: through(MANY_BUFFERS),
            "4 buffers of 1 MiB": lambda: through(LARGE_BUFFERS),
            "2 + 8 buffers": lambda: through(DEFAULT_BUFFERS),
            f"{HUNDRED} channels": lambda: through(MANY_BUFFERS, channels=HUNDRED),
            f"{HUNDRED} channels, buffers of 64 KiB": lambda: through(MIDDLE_BUFFERS, channels=HUNDRED),
            "64 buffers, a Python function on each row": lambda: through(MANY_BUFFERS, 64, row_function=True),
            "64 buffers, TLS": lambda: through(MANY_BUFFERS, 4, tls=True),
            "4 buffers of 1 MiB, TLS": lambda: through(LARGE_BUFFERS, 4, tls=True),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(2 if options.quick else 5):
            options.say(f"exchange: round {number + 1}")
            for name, measure in ways.items():
                rates[name].append(measure())
    raw, small, large, default, hundred, hundred_middle, _, small_tls, large_tls = rates.values()
    of_raw = (
        Figure("64 buffers / raw", "", ratios(small, raw)),
        Figure("4 buffers of 1 MiB / raw", "", ratios(large, raw)),
        Figure("2 + 8 buffers / raw", "", ratios(default, raw)),
        Figure(f"{HUNDRED} channels / raw", "", ratios(hundred, raw)),
        Figure(f"{HUNDRED} channels, buffers of 64 KiB / raw", "", ratios(hundred_middle, raw)),
        Figure("64 buffers, TLS / plain", "", ratios(small_tls, small)),
        Figure("4 buffers of 1 MiB, TLS / plain", "", ratios(large_tls, large)),
    )
    one = max(figure.median for figure in of_raw[:2])
    many = max(figure.median for figure in of_raw[3:5])
    target = f"one channel / raw at least {ONE_TARGET}, {HUNDRED} channels / raw at least {HUNDRED_TARGET}"
    figures = (*(Figure(name, "B/s", tuple(values)) for name, values in rates.items()), *of_raw)
    return CaseResult(
        case="exchange",
        target=target,
        met=one >= ONE_TARGET and many >= HUNDRED_TARGET,
        figures=figures,
        settings={"volume": volume},
    )


def end(name: str, rank: int) -> ChildProcess:
    """Start the process of one end of the exchange (see `exchange_pair`). `rank`, 0 or 1, chooses its cores."""
    return ChildProcess(f"exchange {name}", [sys.executable, "-P", "-m", "headgate.bench.exchange_pair", str(rank)])


def identity() -> dict[str, list[str]]:
    """Make certificates and a key for both ends of a TLS link, for this run only. Return them as part of a request."""
    _, taskmanager = certificates.issue()
    return {"identity": [part.decode() for part in (taskmanager.authority, taskmanager.certificate, taskmanager.key)]}


def rate(
    producer: ChildProcess,
    consumer: ChildProcess,
    volume: int,
    config: Mapping[str, Any],
    *,
    channels: int = 1,
    row_function: bool = False,
    tls: bool = False,
) -> float:
    """Return the bytes/s of rows that go from the producer's `emit` to the consumer's decoded batches.

    With `row_function`, the consumer also calls a function for each row.
    """
    batches = volume // prebuilt_batch().nbytes
    shared = {"config": dict(config), "channels": channels, **(identity() if tls else {})}
    port = producer.ask({"do": "listen", "batches": batches, **shared}, _TIMEOUT)["port"]
    took = consumer.ask({"do": "consume", "port": port, "row_function": row_function, **shared}, _TIMEOUT)
    producer.ask({"do": "result"}, _TIMEOUT)
    return float(took["bytes"] / took["seconds"])
