"""Debloating in a task, and in a job whose sink is slow."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.exchange.channels import InputChannel
from headgate.exchange.debloater import debloated_message_size
from headgate.exchange.gate import InputGate
from headgate.runtime.task.debloating import Debloating
from tests.runtime.jobs import eventually


class Channel(InputChannel):
    """A channel whose measures a test sets."""

    def __init__(self) -> None:
        self.used = 0
        self.told: list[int] = []

    @property
    def buffers_in_use(self) -> int:
        return self.used

    def announce_buffer_size(self, size: int) -> None:
        self.told.append(size)


class Measured:
    """One gate of two channels, measured every second; a target of one second, alpha 1."""

    def __init__(self) -> None:
        self.gate = InputGate(lambda: None)
        self.channels = [Channel(), Channel()]
        self.gate.channels = self.channels
        self.idle = 0.0
        self.message_size = 0
        config = hg.Config(debloat=True, debloat_period=1.0, debloat_samples=1, segment_size=32768, message_size=131072)
        self.debloating = Debloating([self.gate], config, lambda: self.idle, self._set)
        self.now = 100.0
        self.debloating.on_time(self.now)

    def _set(self, message_size: int) -> None:
        self.message_size = message_size

    def second(self, polled: int, used: int, idle: float = 0.0) -> list[int]:
        """A second goes by; returns what each channel was told in all."""
        self.now += 1.0
        self.idle += idle
        self.channels[0].bytes_polled += polled
        self.channels[1].used = used
        self.debloating.on_time(self.now)
        assert self.channels[0].told == self.channels[1].told
        return self.channels[0].told


def test_all_channels_announce_the_size_and_messages_shrink_with_it() -> None:
    measured = Measured()
    assert measured.second(polled=80_000, used=10) == [8000]
    assert measured.message_size == 32_000
    assert measured.debloating.time_to_consume == pytest.approx(1.0)


def test_time_without_input_does_not_count() -> None:
    measured = Measured()
    assert measured.second(polled=40_000, used=10, idle=0.5) == [8000]


def test_without_any_measured_time_the_throughput_stays_what_it_was() -> None:
    measured = Measured()
    measured.second(polled=80_000, used=10)
    assert measured.second(polled=0, used=10, idle=1.0) == [8000]
    assert measured.second(polled=0, used=20, idle=1.0) == [8000, 4000]


def test_it_measures_once_in_each_period() -> None:
    measured = Measured()
    assert measured.debloating.deadline == 101.0
    measured.debloating.on_time(100.9)
    assert measured.second(polled=80_000, used=10) == [8000]


@pytest.mark.parametrize(("buffer_size", "message_size"), [(32768, 131072), (8192, 32768), (256, 4096)])
def test_a_message_has_four_kilobytes_at_least(buffer_size: int, message_size: int) -> None:
    assert debloated_message_size(131072, buffer_size, 32768) == message_size


def test_a_small_message_size_stays_as_it_is() -> None:
    assert debloated_message_size(1000, 256, 32768) == 1000


#: Of each of the two sinks, bytes/s.
RATE = 1_000_000
TARGET = 0.1


def slow(batch: pa.RecordBatch, _info: object) -> None:
    time.sleep(batch.nbytes / RATE)


@pytest.mark.alone
def test_what_is_in_flight_to_a_slow_sink_falls_to_the_target_and_its_rate_stays() -> None:
    """With buffers in full there would be 10 in each of two outputs and 2 inputs: far more than a megabyte."""
    config = hg.Config(debloat=True, debloat_target=TARGET, debloat_period=0.05, debloat_samples=5)
    env = hg.StreamEnvironment(
        parallelism=2, config=config, deployment=hg.LocalDeployment(taskmanagers=2, processes=False)
    )
    numbers = hg.sources.generate(
        lambda start, n: pa.record_batch({"n": pa.array(np.arange(start, start + n))}), batch_rows=512
    )
    env.from_source(numbers).rebalance().sink_to(hg.sinks.for_each_batch(slow))
    job = env.execute_async()

    def rate() -> float:
        before, began = job.metrics()["rows_out"], time.monotonic()
        time.sleep(1.0)
        return 8 * (job.metrics()["rows_out"] - before) / (time.monotonic() - began)  # type: ignore[no-any-return]

    def sizes() -> list[int]:
        tasks = job.metrics()["tasks"].items()
        return [task["debloated_buffer_size"] for name, task in tasks if name.startswith("for_each_batch")]

    def segments() -> int:
        return sum(each["segments"] for each in job.metrics()["in_flight"])

    eventually(lambda: sizes() and max(sizes()) < config.segment_size / 2, 60)
    eventually(lambda: rate() > 0.7 * 2 * RATE, 60)
    eventually(lambda: 0 < segments() < 1.5 * 2 * RATE * TARGET, 60)
    job.cancel()
