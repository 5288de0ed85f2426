"""The answers about a job at its latest snapshot, computed once for all requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final, cast

from headgate.observe.diagnosis import latest_window, while_tasks_ran
from headgate.observe.finding import Finding
from headgate.observe.levels import level
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.metrics_window import TaskWindow, Window
from headgate.observe.topology import EdgeShape, OperatorShape, Topology, VertexShape
from headgate.web.answers import (
    EdgeAnswer,
    FindingAnswer,
    Level,
    OperatorAnswer,
    Role,
    SourceLag,
    SplitUnread,
    SubtaskAnswer,
    VertexAnswer,
)
from headgate.web.channel_ranking import ChannelRanking
from headgate.web.job_view import JobView
from headgate.web.watermark_answer import watermark_of

#: The most findings of an answer.
_FINDINGS: Final = 10
#: A smaller lag, in seconds, does not count. A source has it between two batches.
_LEAST_LAG: Final = 0.5
#: The most splits of an answer.
_MOST_SPLITS: Final = 100


class JobReading:
    """A job's last window, its findings, and the answers made from both. `at` is None before the first snapshot.

    Totals come from the last snapshot. What tasks do, and which of them run, comes from the last seconds in which at
    least one of them ran: the last snapshot of a finished job has only ended tasks.
    """

    def __init__(self, job: JobView, snapshots: Sequence[MetricsSnapshot]) -> None:
        self.job = job
        #: The findings of a running job may be older than its latest snapshot. Those of an ended job are final.
        self.has_ended = job.facts().ended_at is not None
        self.topology: Topology = job.topology
        last = snapshots[-1] if snapshots else None
        self.at = None if last is None else last.at
        self.attempt = 0 if last is None else last.attempt
        ran = while_tasks_ran(snapshots)
        self.window: Window | None = latest_window(self.topology, ran)
        self.findings: list[Finding] = [] if self.window is None else list(job.diagnose())[:_FINDINGS]
        #: The vertex of each finding: the vertex of the operator that the finding names.
        self._places = [self._place(each) for each in self.findings]
        self._before = _at(snapshots, self.window.begin) if self.window is not None else None
        self._after = ran[-1] if ran else last
        reports = () if last is None else last.reports
        latest = () if self._after is None else self._after.reports
        self._rows = {(row["node"], row["subtask"]): row for report in reports for row in report["operators"]}
        #: How many tasks have (vertex, ended). A report has no tasks of stages that have not started.
        self._tasks = Counter((task["vertex"], task["ended"]) for report in latest for task in report["tasks"])
        self.vertices = [self._vertex(vertex) for vertex in self.topology.vertices]
        self.edges = self._edges()
        self.subtasks = self._subtasks()
        self.lag = self._lags()
        self.unread = self._unread()

    def finding_answers(self) -> list[FindingAnswer]:
        return [
            FindingAnswer(**{**each.as_json(), "vertex": vertex})
            for each, vertex in zip(self.findings, self._places, strict=True)
        ]

    def _place(self, finding: Finding) -> int | None:
        if finding.operator is None:
            return finding.vertex
        named = (
            vertex.id
            for vertex in self.topology.vertices
            if finding.operator in {each.name for each in vertex.operators}
        )
        return next(named, finding.vertex)

    def busiest(self, vertex: int, operators: Sequence[str]) -> tuple[str, int]:
        """Return (operator, subtask): of the named operators of a vertex, that which worked most in one subtask.

        If this is not known, it is the first operator that is named, and subtask 0.
        """
        ids = {each.id: each.name for each in self.topology.vertices[vertex].operators if each.name in operators}
        tasks = [] if self.window is None else self.window.of(vertex)
        busy = [(task.operators[id_].busy, name, task.subtask) for task in tasks for id_, name in ids.items()]
        _, operator, subtask = max(busy, default=(0.0, operators[0], 0), key=lambda each: each[0])
        return operator, subtask

    def top(self, count: int) -> list[SubtaskAnswer]:
        """Return the `count` most important subtasks: causes first, then the busiest; ended subtasks come last."""
        return sorted(self.subtasks, key=_rank)[:count]

    @cached_property
    def channels(self) -> ChannelRanking:
        """The channels that TaskManagers report. The channel that waits longest comes first."""
        return ChannelRanking(self.topology, self.window)

    # --- vertices

    def _vertex(self, shape: VertexShape) -> VertexAnswer:
        window, id_ = self.window, shape.id
        running = [] if window is None else window.of(id_)
        blocked = max((task.blocked for task in running), default=0.0)
        watermark, state = watermark_of(self.topology, id_, self._rows)
        first, last = shape.operators[0], shape.operators[-1]
        return VertexAnswer(
            id=id_,
            name=shape.name,
            parallelism=shape.parallelism,
            running=self._tasks[id_, False],
            ended=self._tasks[id_, True],
            operators=[self._operator(each, running) for each in shape.operators],
            role=self._role(id_, blocked),
            **_shares(
                max((task.busy for task in running), default=0.0),
                blocked,
                max((task.throttled for task in running), default=0.0),
                max((task.idle for task in running), default=0.0),
            ),
            rows_in_per_s=self._rate(first, running, "rows_in"),
            rows_out_per_s=self._rate(last, running, _written(last)),
            rows_in=self._total(first, "rows_in"),
            rows_out=self._total(last, _written(last)),
            late_rows=sum(self._total(each, "late_rows") for each in shape.operators),
            watermark=watermark,
            watermark_state=state,
        )

    def _operator(self, shape: OperatorShape, running: Sequence[TaskWindow]) -> OperatorAnswer:
        busy = max((task.operators[shape.id].busy for task in running), default=0.0)
        is_cause = any(each.operator == shape.name for each in self.findings)
        waits = any(shape.name in each.waits for each in self.findings)
        role: Role = "cause" if is_cause else "waits" if waits else ""
        return OperatorAnswer(id=shape.id, name=shape.name, kind=shape.kind, busy_ratio=_share(busy), role=role)

    def _role(self, vertex: int, blocked: float) -> Role:
        if vertex in self._places:
            return "cause"
        return "" if _level(blocked) == "OK" else "waits"

    def _rate(self, operator: OperatorShape, running: Sequence[TaskWindow], counter: str) -> float:
        rows = sum(getattr(task.operators[operator.id], counter) for task in running)
        return 0.0 if self.window is None else round(rows / self.window.seconds, 1)

    def _total(self, operator: OperatorShape, counter: str) -> int:
        return sum(int(row.get(counter, 0)) for (node, _), row in self._rows.items() if node == operator.id)

    # --- edges

    def _edges(self) -> list[EdgeAnswer]:
        before, after = _edge_totals(self._before), _edge_totals(self._after)
        seconds = 1.0 if self.window is None else self.window.seconds
        return [self._edge(each, before.get(each.name), after.get(each.name), seconds) for each in self.topology.edges]

    def _edge(
        self, shape: EdgeShape, before: tuple[int, int] | None, after: tuple[int, int] | None, seconds: float
    ) -> EdgeAnswer:
        rows, size = (0, 0) if before is None or after is None else (after[0] - before[0], after[1] - before[1])
        blocked = 0.0 if self.window is None else self.window.blocked(shape.source)
        is_cause = any(each.operator is None and repr(shape.name) in each.place for each in self.findings)
        return EdgeAnswer(
            name=shape.name,
            source=shape.source,
            target=shape.target,
            partitioning=shape.partitioning,
            rows_per_s=round(rows / seconds, 1),
            bytes_per_s=round(size / seconds, 1),
            blocked_ratio=_share(blocked),
            role="cause" if is_cause else "" if _level(blocked) == "OK" else "waits",
        )

    # --- subtasks

    def _subtasks(self) -> list[SubtaskAnswer]:
        places = zip(self.findings, self._places, strict=True)
        hot = {(vertex, subtask) for each, vertex in places for subtask in each.subtasks}
        return [self._subtask(task, hot) for task in (() if self.window is None else self.window.tasks)]

    def _subtask(self, task: TaskWindow, hot: Set[tuple[int | None, int]]) -> SubtaskAnswer:
        shape = self.topology.vertices[task.vertex]
        seconds = next(iter(task.operators.values())).seconds
        is_cause = (task.vertex, task.subtask) in hot
        return SubtaskAnswer(
            vertex=task.vertex,
            vertex_name=shape.name,
            subtask=task.subtask,
            name=f"{shape.name}[{task.subtask}]",
            ended=task.ended,
            role="cause" if is_cause else "" if _level(task.blocked) == "OK" else "waits",
            **_shares(task.busy, task.blocked, task.throttled, task.idle),
            soft_backpressured_ratio=_share(task.soft),
            hard_backpressured_ratio=_share(task.hard),
            checkpoint_ratio=_share(task.checkpoint),
            cpu_ratio=None if task.cpu is None else _share(task.cpu),
            rows_in_per_s=round(task.rows_in / seconds, 1),
            in_pool_usage=_share(task.in_pool_usage),
            out_pool_usage=round(task.out_pool_usage, 3),
            input_queue=task.input_queue,
        )

    # --- lag

    def _lags(self) -> list[SourceLag]:
        """Return the lag of each source with a schedule: the largest lag of its subtasks."""
        latest: dict[int, SourceLag] = {}
        for task in () if self.window is None else self.window.tasks:
            for operator in task.operators.values():
                known = latest.get(operator.id)
                if operator.lag_s is None or task.ended or (known is not None and known.lag_s >= operator.lag_s):
                    continue
                latest[operator.id] = _lag(
                    self.topology.operator(operator.id).name, task.subtask, operator.lag_s, operator.lag_growth or 0.0
                )
        return list(latest.values())

    def _unread(self) -> list[SplitUnread]:
        """Return the unread messages of each split whose source knows their number, the largest number first."""
        operators = [
            operator
            for task in (() if self.window is None else self.window.tasks)
            for operator in task.operators.values()
            if not task.ended
        ]
        found = [
            _split(self.topology.operator(each.id).name, split, count, (each.unread_growth or {}).get(split, 0.0))
            for each in operators
            for split, count in (each.unread or {}).items()
        ]
        return sorted(found, key=lambda each: (-each.messages, each.operator, each.split))[:_MOST_SPLITS]


def _split(operator: str, split: str, messages: int, growth: float) -> SplitUnread:
    catch_up = 0.0 if not messages else messages / -growth if growth < 0 else None
    return SplitUnread(
        operator=operator,
        split=split,
        messages=messages,
        growth=round(growth, 1),
        catch_up_s=None if catch_up is None else round(catch_up, 1),
    )


def _lag(operator: str, subtask: int, lag: float, growth: float) -> SourceLag:
    catch_up = 0.0 if lag < _LEAST_LAG else lag / -growth if growth < -1e-3 else None
    return SourceLag(
        operator=operator,
        subtask=subtask,
        lag_s=round(lag, 2),
        growth=round(growth, 3),
        catch_up_s=None if catch_up is None else round(catch_up, 1),
    )


def _rank(task: SubtaskAnswer) -> tuple[bool, bool, float, int, int]:
    return task.ended, task.role != "cause", -max(task.busy_ratio, task.backpressured_ratio), task.vertex, task.subtask


def _written(operator: OperatorShape) -> str:
    """Return the name of the counter of rows that leave an operator. A sink writes the rows that it takes."""
    return "rows_in" if operator.kind == "sink" else "rows_out"


def _level(share: float) -> Level:
    return cast(Level, level(share))


def _shares(busy: float, blocked: float, throttled: float, idle: float) -> dict[str, Any]:
    """Return the fields of `TimeShares`."""
    return {
        "level": _level(blocked),
        "busy_ratio": _share(busy),
        "backpressured_ratio": _share(blocked),
        "throttled_ratio": _share(throttled),
        "idle_ratio": _share(idle),
    }


def _share(value: float) -> float:
    return round(min(1.0, value), 3)


def _at(snapshots: Sequence[MetricsSnapshot], at: float) -> MetricsSnapshot | None:
    return next((each for each in reversed(snapshots) if each.at == at), None)


def _edge_totals(snapshot: MetricsSnapshot | None) -> dict[str, tuple[int, int]]:
    """Return the number of rows and of bytes by the name of the exchange."""
    totals: dict[str, tuple[int, int]] = {}
    for edge in _edge_rows(snapshot):
        rows, size = totals.get(edge["name"], (0, 0))
        totals[edge["name"]] = rows + edge["rows_out"], size + edge["bytes_out"]
    return totals


def _edge_rows(snapshot: MetricsSnapshot | None) -> list[Mapping[str, Any]]:
    return [] if snapshot is None else [edge for report in snapshot.reports for edge in report.get("edges", ())]
