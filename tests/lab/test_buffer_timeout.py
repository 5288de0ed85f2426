"""`buffer-timeout`, small: the exchange of many channels runs with every timeout; and the verdict."""

from __future__ import annotations

import pytest

from headgate.lab import buffer_timeout
from headgate.lab.buffer_timeout import ADAPTIVE, TIMEOUTS, Fan, Outcome, one_round
from headgate.lab.fan_pair import BATCH_ROWS


@pytest.mark.alone  # half a second has to be enough for some rows
def test_rows_of_every_timeout_arrive_and_are_counted() -> None:
    with Fan() as fan:
        runs = [fan.run(10, timeout, 20_000.0, seconds=0.5, warm_up=0) for timeout in TIMEOUTS.values()]
    assert all(sum(took["late"]) == took["rows"] for took in runs)
    assert sum(took["rows"] for took in runs) > 0
    assert sum(took["buffers"] for took in runs) >= 10


@pytest.mark.alone  # two seconds have to be enough for some rows
def test_a_load_of_more_than_a_batch_in_a_millisecond_is_offered() -> None:
    with Fan() as fan:
        assert fan.run(1, 0.0, 2_000.0 * BATCH_ROWS, seconds=2.0, warm_up=0)["rows"] > 0


def test_each_round_begins_with_another_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[object] = []

    def run(_fan: Fan, _channels: int, timeout: object, _rate: float | None, _seconds: float) -> dict[str, object]:
        order.append(timeout)
        return {"rows": 1.0, "seconds": 1.0, "cells": [], "late": [], "buffers": 1}

    monkeypatch.setattr(Fan, "run", run)
    with Fan() as fan:
        for number in range(2):
            one_round(fan, 1, 1.0, {}, first=number)
    timeouts = list(TIMEOUTS.values())
    assert order == 2 * timeouts + 2 * [*timeouts[1:], timeouts[0]]


@pytest.mark.alone  # a thousand channels have to connect within these seconds
def test_a_thousand_channels_at_full_speed() -> None:
    with Fan() as fan:
        took = fan.run(1000, 0.1, None, seconds=4.0, warm_up=0)
        assert took["rows"] > 0
        assert took["buffers"] > 0


def outcomes(ours: Outcome, best: Outcome) -> buffer_timeout.Outcomes:
    slow = Outcome([1e6], [1.0], [50.0], [90.0], [10.0])
    overrun = Outcome([2e6], [0.3], [0.1], [0.1], [1e5])
    names = dict.fromkeys(TIMEOUTS, slow) | {"0": overrun, "1 ms": best, ADAPTIVE: ours}
    return {(100, name): outcome for name, outcome in names.items()}


@pytest.mark.parametrize(
    ("rate", "p50", "p99", "carried", "met"),
    [
        (9e6, 2.0, 4.0, 1.0, True),
        (8.9e6, 1.0, 2.0, 1.0, False),
        (10e6, 2.1, 2.0, 1.0, False),
        (10e6, 1.0, 4.1, 1.0, False),
        (10e6, 1.0, 2.0, 0.8, False),
    ],
)
def test_verdict_compares_adaptive_with_the_best_that_carries_the_load(
    rate: float, p50: float, p99: float, carried: float, met: bool
) -> None:
    best = Outcome([10e6], [1.0], [1.0], [2.0], [100.0])
    ours = Outcome([rate], [carried], [p50], [p99], [100.0])
    result = buffer_timeout.report(outcomes(ours, best), [100])
    figures = {figure.name: figure.median for figure in result.figures}
    assert result.met is met
    assert "100 channels, 0: p99 at 10%" not in figures
    assert figures["100 channels, 0: carried of 10%"] == 0.3
    assert [series.name for series in result.plots[0].series] == list(TIMEOUTS)
