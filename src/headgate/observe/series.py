"""The time series of a job: the values of each snapshot that the history keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.observe.metrics_snapshot import Counters, MetricsSnapshot
from headgate.records.elements import MAX_TIME, MIN_TIME

#: The totals of a task. The history keeps their growth per second.
_TASK_TOTALS: Final = (
    "busy_s", "idle_s", "soft_backpressured_s", "hard_backpressured_s", "checkpoint_wait_s", "throttle_wait_s",
    "interpreter_wait_s", "cpu_s", "run_delay_s", "disk_wait_s",
)  # fmt: skip
#: The current values of a task. The history keeps the values themselves.
_TASK_VALUES: Final = (
    "in_pool_usage",
    "out_pool_usage",
    "input_floating_usage",
    "input_exclusive_usage",
    "input_queue",
)
_OPERATOR_TOTALS: Final = ("rows_in", "rows_out", "late_rows", "busy_s")
_OPERATOR_VALUES: Final = ("lag_s", "state_bytes", "state_keys")
#: The totals of an exchange, of all its producers together.
_EDGE_TOTALS: Final = ("rows_out", "bytes_out")
_MACHINE_TOTALS: Final = ("cpu_s", "machine_cpu_s", "steal_s", "throttled_s", "collection_s", "io_pressure_s")


def series_of(before: MetricsSnapshot | None, after: MetricsSnapshot) -> dict[str, float | None]:
    """Return the values of all series, by name: "task/name[subtask]/counter", "operator/...", "edge/name/counter",
    "machine/number/...".

    A total becomes its growth per second, so the first snapshot of an attempt has no values for totals.
    "operator/name[subtask]/watermark_lag_s" is how many seconds the operator's event time is behind the clock. It has
    no value before the first row, while the source is idle, and after the end of the input.
    """
    reports = before.reports if before is not None and before.attempt == after.attempt else ()
    values: dict[str, float | None] = {}
    for number, new in enumerate(after.reports):
        old: Counters = reports[number] if number < len(reports) else {}
        values.update(_series(old, new, number))
        values.update((f"operator/{name}/watermark_lag_s", lag) for name, lag in _watermark_lags(new, after.at))
        for name, growth in _edge_growths(old, new):
            values[name] = (values.get(name) or 0.0) + growth
    return values


def _series(old: Counters, new: Counters, number: int) -> Iterator[tuple[str, float | None]]:
    seconds = new["clock_s"] - old["clock_s"] if old else 0.0
    rows: list[tuple[str, Counters, Sequence[str], Sequence[str]]]
    rows = [(f"task/{task['name']}", task, _TASK_TOTALS, _TASK_VALUES) for task in new["tasks"]]
    rows += [
        (f"operator/{row['name']}[{row['subtask']}]", row, _OPERATOR_TOTALS, _OPERATOR_VALUES)
        for row in new["operators"]
    ]
    earlier = _by_name(old)
    for name, row, totals, values in rows:
        before = earlier.get(name, {})
        for total in totals:
            yield f"{name}/{total}", _growth(before.get(total), row.get(total), seconds)
        for value in values:
            yield f"{name}/{value}", row.get(value)
    yield from _machine_growths(old, new, number)


def _machine_growths(old: Counters, new: Counters, number: int) -> Iterator[tuple[str, float | None]]:
    """Yield the growth per second of the machine's totals, by their own clock: a report repeats them for a second."""
    before, after = old.get("machine", {}), new["machine"]
    clock = after.get("clock_s", new["clock_s"])  # older recordings do not have it
    seconds = clock - before.get("clock_s", old["clock_s"]) if old else 0.0
    for total in _MACHINE_TOTALS:
        yield f"machine/{number}/{total}", _growth(before.get(total), after.get(total), seconds)


def _watermark_lags(report: Counters, at: float) -> Iterator[tuple[str, float]]:
    for row in report["operators"]:
        watermark = current_watermark(row)
        if watermark is not None:
            yield f"{row['name']}[{row['subtask']}]", at - watermark


def current_watermark(row: Counters) -> float | None:
    """Return the watermark of an operator's subtask in seconds since the epoch, or None if it shows no lag.

    It shows none before the first row, while the source is idle, and after the end of the input.
    """
    watermark = row.get("watermark")
    if watermark is None or not MIN_TIME < watermark < MAX_TIME or row.get("is_idle"):
        return None
    return float(watermark / 1e6)


def _edge_growths(old: Counters, new: Counters) -> Iterator[tuple[str, float]]:
    """Yield the growth per second of the totals of each producer of an exchange in one TaskManager."""
    before = {(row["name"], row["producer"]): row for row in old.get("edges", ())}
    for row in new.get("edges", ()):
        earlier = before.get((row["name"], row["producer"]), {})
        for total in _EDGE_TOTALS:
            growth = _growth(earlier.get(total), row.get(total), new["clock_s"] - old["clock_s"] if old else 0.0)
            if growth is not None:
                yield f"edge/{row['name']}/{total}", growth


def _by_name(report: Counters) -> dict[str, Counters]:
    named: dict[str, Counters] = {f"task/{task['name']}": task for task in report.get("tasks", ())}
    named |= {f"operator/{row['name']}[{row['subtask']}]": row for row in report.get("operators", ())}
    return named


def _growth(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    return max(0.0, after - before) / seconds
