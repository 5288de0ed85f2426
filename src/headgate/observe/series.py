"""The time series of a job: the values of each snapshot that the history keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.observe.metrics_snapshot import Counters, MetricsSnapshot

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
_MACHINE_TOTALS: Final = ("cpu_s", "machine_cpu_s", "steal_s", "throttled_s", "collection_s", "io_pressure_s")


def series_of(before: MetricsSnapshot | None, after: MetricsSnapshot) -> dict[str, float | None]:
    """Return the values of all series, by name: "task/name[subtask]/counter", "operator/...", "machine/number/...".

    A total becomes its growth per second, so the first snapshot of an attempt has no values for totals.
    """
    reports = before.reports if before is not None and before.attempt == after.attempt else ()
    values: dict[str, float | None] = {}
    for number, new in enumerate(after.reports):
        old: Counters = reports[number] if number < len(reports) else {}
        values.update(_series(old, new, number))
    return values


def _series(old: Counters, new: Counters, number: int) -> Iterator[tuple[str, float | None]]:
    seconds = new["clock_s"] - old["clock_s"] if old else 0.0
    rows: list[tuple[str, Counters, Sequence[str], Sequence[str]]]
    rows = [(f"task/{task['name']}", task, _TASK_TOTALS, _TASK_VALUES) for task in new["tasks"]]
    rows += [
        (f"operator/{row['name']}[{row['subtask']}]", row, _OPERATOR_TOTALS, _OPERATOR_VALUES)
        for row in new["operators"]
    ]
    rows.append((f"machine/{number}", new["machine"], _MACHINE_TOTALS, ()))
    earlier = {**_by_name(old), f"machine/{number}": old.get("machine", {})}
    for name, row, totals, values in rows:
        before = earlier.get(name, {})
        for total in totals:
            yield f"{name}/{total}", _growth(before.get(total), row.get(total), seconds)
        for value in values:
            yield f"{name}/{value}", row.get(value)


def _by_name(report: Counters) -> dict[str, Counters]:
    named: dict[str, Counters] = {f"task/{task['name']}": task for task in report.get("tasks", ())}
    named |= {f"operator/{row['name']}[{row['subtask']}]": row for row in report.get("operators", ())}
    return named


def _growth(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    return max(0.0, after - before) / seconds
