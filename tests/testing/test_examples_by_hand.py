"""The project's examples, tested as a user tests a pipeline: with chosen rows, watermarks and restarts."""

from __future__ import annotations

import importlib.util
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest

from headgate import testing
from headgate.testing import AdvanceWatermark, Restart, at

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def orders(parallelism: int = 1) -> testing.OperatorHarness:
    timers = example("state_and_timers")
    return testing.OperatorHarness(timers.unpaid, schema=timers.EVENTS, event_time="at", parallelism=parallelism)


def test_an_order_is_unpaid_after_15_minutes() -> None:
    harness = orders()
    harness.push([{"order": 1, "what": what, "at": at("0 s")} for what in ("tea", "milk", "tea")])
    assert harness.advance_watermark(at("899 s")) == []
    assert harness.advance_watermark(at("15 min")) == [{"order": 1, "items": [("milk", 1), ("tea", 2)]}]
    assert harness.end() == []


def test_an_order_that_is_paid_in_time_is_forgotten() -> None:
    harness = orders()
    harness.push({"order": 1, "what": "tea", "at": at("0 s")})
    harness.push({"order": 1, "what": "paid", "at": at("15 min")})
    assert harness.end() == []
    assert harness.take("late") == []


def test_an_order_that_is_paid_too_late_goes_aside_before_and_after_its_timer() -> None:
    harness = orders()
    harness.push({"order": 1, "what": "tea", "at": at("0 s")})
    harness.push({"order": 1, "what": "paid", "at": at("901 s")})
    assert harness.take("late") == [{"order": 1}]
    assert harness.advance_watermark(at("1 h")) == [{"order": 1, "items": [("tea", 1)]}]
    harness.push({"order": 1, "what": "paid", "at": at("902 s")})
    assert harness.take("late") == [{"order": 1}]


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("after", [1, 2])
def test_orders_and_their_timers_survive_a_restart(before: int, after: int) -> None:
    harness = orders(before)
    for order in range(20):
        harness.push({"order": order, "what": "tea", "at": at(order)})
    harness.restart(parallelism=after)
    harness.push([{"order": order, "what": "milk", "at": at(20)} for order in range(20)])
    found = harness.advance_watermark(at("15 min") + (at(9) - at(0)))
    testing.assert_same_rows(found, [{"order": n, "items": [("milk", 1), ("tea", 1)]} for n in range(10)])


def test_a_reading_that_comes_late_counts_for_two_minutes() -> None:
    late_rows = example("late_rows")
    harness = testing.OperatorHarness(late_rows.per_minute, schema=late_rows.READINGS, event_time="at")
    window = {"window_start": at(0), "window_end": at("1 min")}
    harness.push({"at": at("10 s"), "level": 1.0})
    assert harness.advance_watermark(at("1 min")) == [window | {"readings": 1}]
    assert harness.push({"at": at("30 s"), "level": 1.0}) == [window | {"readings": 2}]
    harness.advance_watermark(at("3 min"))
    assert harness.push({"at": at("40 s"), "level": 9.0}) == []
    assert harness.take("late") == [{"at": at("40 s"), "level": 9.0}]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_order_of_no_pieces_is_refused(parallelism: int) -> None:
    rows = [{"item": "tea", "pieces": 1}, {"item": "tea", "pieces": 0}, {"item": "milk", "pieces": 2}]
    result = testing.run(example("side_output").pipeline, rows, parallelism=parallelism)
    testing.assert_same_rows(result["totals"], [{"item": "tea", "pieces": 1}, {"item": "milk", "pieces": 2}])
    assert result["refused"] == [{"item": "tea", "why": "0 pieces"}]


@pytest.mark.parametrize("row", range(4))
def test_words_are_counted_once_whenever_the_pipeline_is_resumed(row: int) -> None:
    given = [
        {"said_at": datetime(2024, 5, 1, 12, 0, 10), "line": "the gate"},
        {"said_at": datetime(2024, 5, 1, 12, 0, 20), "line": "the canal"},
        AdvanceWatermark(datetime(2024, 5, 1, 12, 1)),
        {"said_at": datetime(2024, 5, 1, 12, 1, 5), "line": "the gate"},
    ]
    counts = testing.run(example("word_count").counts, given, restarts=[Restart(row, parallelism=2)]).rows
    said = [(row["window_start"].minute, row["word"], row["times"]) for row in counts]
    assert sorted(said) == [(0, "canal", 1), (0, "gate", 1), (0, "the", 2), (1, "gate", 1), (1, "the", 1)]
