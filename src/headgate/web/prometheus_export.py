"""The metrics of all jobs in Prometheus's format. Each scrape reads the last reports; this module counts nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headgate.observe.series import current_watermark
from headgate.web.job_board import JobBoard
from headgate.web.job_view import JobView
from headgate.web.prometheus_table import EDGE, JOB_LABELS, NETWORK_MEMORY, OPERATOR, OTHER, TASK, TASKMANAGER, Exported

#: The most subtasks of a job, and the most characters of a label.
_SUBTASKS: Final = 1000
_LABEL: Final = 128
#: Seconds for which the last counters of an ended job are exported, so that no scrape misses them.
_ENDED: Final = 300.0
_OTHER: Final = {name: (labels, meaning) for name, labels, meaning in OTHER}
Row = Mapping[str, Any]


def exposition(board: JobBoard, accept: str) -> tuple[bytes, str]:
    """Return the metrics of all jobs of a board, and their media type. `accept` is the request's Accept header."""
    registry = CollectorRegistry()
    registry.register(_JobCollector(board))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _JobCollector(Collector):
    """A collector that makes the metrics of all jobs at each scrape."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        families = _Families()
        now = time.time()
        for job in self._board.jobs():
            ended_at = job.facts().ended_at
            if ended_at is None or now - ended_at < _ENDED:
                _JobMetrics(families, job, has_ended=ended_at is not None).add()
        yield from families.families.values()


class _Families:
    """Metric families by name. A family has the samples of all jobs."""

    def __init__(self) -> None:
        self.families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}

    def add(self, metric: Exported, labels: Sequence[str], values: Sequence[str], value: float | None) -> None:
        """Add a sample. Do nothing if its value is None."""
        if value is None:
            return
        family = self.families.get(metric.name)
        if family is None:
            kind = CounterMetricFamily if metric.is_total else GaugeMetricFamily
            family = self.families[metric.name] = kind(f"headgate_{metric.name}", metric.meaning, labels=labels)
        family.add_metric(values, value)


class _JobMetrics:
    """Adds the samples of one job. A job that has ended has no current values, only totals."""

    def __init__(self, families: _Families, job: JobView, *, has_ended: bool) -> None:
        self._families = families
        self._job = job
        self._has_ended = has_ended
        snapshots = job.snapshots()
        self._reports: Sequence[Row] = snapshots[-1].reports if snapshots else ()
        attempt = snapshots[-1].attempt if snapshots else 0
        self._values = (job.id, _label(job.name), str(attempt))
        self._vertices = {vertex.id: vertex.name for vertex in job.topology.vertices}

    def add(self) -> None:
        """Add all samples."""
        facts = self._job.facts()
        self._other("job_state_info", 1, facts.state)
        self._other("job_restarts_total", facts.restarts)
        self._add_tasks()
        self._add_edges()
        for number, report in enumerate(self._reports):
            self._add_taskmanager(str(number), report)
        if not self._has_ended:
            self._other("job_severity", max((int(each.severity) for each in self._job.diagnose()), default=0))
        self._add_checkpoint()

    def _add_tasks(self) -> None:
        tasks = [task for report in self._reports for task in report["tasks"]]
        tasks.sort(key=lambda task: (task["vertex"], task["subtask"]))
        shown = {(task["vertex"], task["subtask"]) for task in tasks[:_SUBTASKS]}
        for task in tasks[:_SUBTASKS]:
            self._rows(TASK, {"vertex": self._vertices[task["vertex"]], "subtask": str(task["subtask"])}, task)
        vertex_of = {each.id: vertex.id for vertex in self._job.topology.vertices for each in vertex.operators}
        for row in (row for report in self._reports for row in report["operators"]):
            if (vertex_of[row["node"]], row["subtask"]) in shown:
                self._rows(OPERATOR, {"operator": row["name"], "subtask": str(row["subtask"])}, _of_attempt(row))
                for split, count in (row.get("unread") or {}).items():
                    self._other("split_unread_messages", count, row["name"], split)
                watermark = current_watermark(row)
                if watermark is not None:
                    self._other("operator_watermark_timestamp_seconds", watermark, row["name"], str(row["subtask"]))
        self._other("job_left_out_subtasks", len(tasks) - len(shown))

    def _add_edges(self) -> None:
        totals: dict[str, dict[str, int]] = defaultdict(lambda: {"rows_out": 0, "bytes_out": 0})
        for edge in (edge for report in self._reports for edge in report.get("edges", ())):
            for counter in ("rows_out", "bytes_out"):
                totals[edge["name"]][counter] += edge[counter]
        for name, row in totals.items():
            self._rows(EDGE, {"edge": name}, row)

    def _add_taskmanager(self, number: str, report: Row) -> None:
        self._rows(TASKMANAGER, {"taskmanager": number}, report["machine"])
        self._rows(NETWORK_MEMORY, {"taskmanager": number}, report.get("network_memory", {}))
        for place, size in report.get("in_flight", {}).items():
            self._other("taskmanager_in_flight_bytes", size, number, place)

    def _add_checkpoint(self) -> None:
        complete = [each for each in self._job.checkpoints() if each.failure is None]
        if complete:
            self._other("checkpoint_last_duration_seconds", complete[-1].duration)
            self._other("checkpoint_last_size_bytes", complete[-1].size)
            self._other("checkpoint_last_id", complete[-1].checkpoint)

    def _rows(self, table: Sequence[Exported], labels: Mapping[str, str], row: Row) -> None:
        names = (*JOB_LABELS, *labels)
        values = (*self._values, *map(_label, labels.values()))
        for metric in table:
            if metric.is_total or not self._has_ended:
                self._families.add(metric, names, values, row.get(metric.counter))

    def _other(self, name: str, value: float, *values: str) -> None:
        labels, meaning = _OTHER[name]
        metric = Exported(name.removesuffix("_total"), "", meaning, is_total=name.endswith("_total"))
        if metric.is_total or not self._has_ended or name == "job_state_info":
            own = 2 if name.startswith("job_") else 3  # metrics of all attempts have no label `attempt`
            names, given = (*JOB_LABELS[:own], *labels), (*self._values[:own], *map(_label, values))
            self._families.add(metric, names, given, value)


def _of_attempt(row: Row) -> Row:
    """Return an operator's counters without the rows of earlier attempts, which have samples of their own."""
    return {**row, **{name: row[name] - before for name, before in row.get("restored", {}).items()}}


def _label(value: str) -> str:
    return value[:_LABEL]
