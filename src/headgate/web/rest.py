"""The REST interface: paths like Flink's, and what each answers. No HTTP library is used here."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headgate.errors import ProfileError, TraceError
from headgate.observe.channel_trace import ChannelTrace
from headgate.observe.history import Point
from headgate.web.answers import (
    Backpressure,
    Channels,
    CheckpointAnswer,
    CheckpointsAnswer,
    Diagnosis,
    FlameGraph,
    JobAnswer,
    Jobs,
    JobSummary,
    MetricsAnswer,
    Overview,
    SeriesAnswer,
    SeriesPoints,
    SubtaskPressure,
    Subtasks,
    TimeShares,
    TraceAnswer,
    TraceEventAnswer,
    VertexAnswer,
)
from headgate.web.flame_answer import flame_graph, profile_summary
from headgate.web.job_board import JobBoard
from headgate.web.job_reading import JobReading
from headgate.web.job_view import RECORDED, CheckpointView, JobFacts, JobView
from headgate.web.refusal import Refusal

#: The most subtasks, names, series, points and channels of one answer.
MOST_SUBTASKS: Final = 500
MOST_NAMES: Final = 1000
MOST_SERIES: Final = 20
MOST_POINTS: Final = 2000
MOST_CHANNELS: Final = 50
#: The subtasks of an overview.
TOP: Final = 10
#: Seconds of a profile, unless the request says how long.
_PROFILE: Final = 2.0
#: Seconds after the end of a trace or a profile within which its TaskManagers must answer.
_LATE: Final = 10.0
#: The most characters of an error, and the most TaskManagers, in an answer.
_ERROR: Final = 4000
_TASKMANAGERS: Final = 500
_T = TypeVar("_T")
_VERDICTS: Final = {"ok": "The job has no bottleneck.", "pending": "The first verdict comes after three seconds."}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query: a whole number, a number or a text, with its bounds."""

    name: str
    kind: type[int] | type[float] | type[str]
    meaning: str
    default: float | None = None
    #: The largest number. For a text: 1 if it must be given once, None if it may be given several times.
    most: float | None = None

    @property
    def is_required(self) -> bool:
        return self.kind is str and self.most == 1


class Query:
    """The parameters of a request, with all values of each name. Raises Refusal for an unknown parameter."""

    def __init__(self, given: Sequence[tuple[str, str]], known: Sequence[Parameter]) -> None:
        self._given = given
        self._known = {each.name: each for each in known}
        unknown = [name for name, _ in given if name not in self._known]
        if unknown:
            raise Refusal(400, f"unknown parameter {unknown[0][:100]!r}; known: {', '.join(self._known) or 'none'}")

    def texts(self, name: str) -> list[str]:
        return [value for each, value in self._given if each == name]

    def text(self, name: str) -> str:
        """Return a text that must be given. Raises Refusal."""
        texts = self.texts(name)
        if not texts:
            raise Refusal(400, f"give {name}: {self._known[name].meaning}")
        return texts[-1]

    def number(self, name: str) -> float:
        """Return the number that the request gives for a parameter, or the parameter's default.

        Raises Refusal for a value that is not a number from 0 to the parameter's bound.
        """
        known = self._known[name]
        texts = self.texts(name)
        if not texts:
            return known.default or 0.0
        try:
            value = float(known.kind(texts[-1]))
        except (ValueError, OverflowError):
            value = math.nan
        if not 0 <= value <= (math.inf if known.most is None else known.most):
            bound = "" if known.most is None else f" of at most {known.most:g}"
            raise Refusal(400, f"{name} must be a number{bound}, not {texts[-1][:100]!r}")
        return value


class Asked:
    """One request: the job, the vertex, and the parameters."""

    def __init__(self, rest: Rest, path: Mapping[str, str], query: Query) -> None:
        self._rest = rest
        self._path = path
        self.query = query

    @property
    def jobs(self) -> list[JobView]:
        return self._rest.board.jobs()

    @property
    def job(self) -> JobView:
        job = self._rest.board.find(self._path["job"])
        if job is None:
            raise Refusal(404, f"no job {self._path['job'][:100]!r}; /jobs lists the jobs that are known")
        return job

    @property
    def reading(self) -> JobReading:
        return self._rest.reading(self.job)

    @property
    def vertex(self) -> VertexAnswer:
        vertices, number = self.reading.vertices, self._path["vertex"]
        if not number.isdecimal() or not number.isascii() or len(number) > 9 or int(number) >= len(vertices):
            raise Refusal(404, f"no vertex {number[:100]!r}: vertices are numbered from 0 to {len(vertices) - 1}")
        return vertices[int(number)]


class Rest:
    """Answers requests about the jobs of a board. Only one thread may use this object."""

    def __init__(self, board: JobBoard, clock: Callable[[], float] = time.time) -> None:
        self.board = board
        self._clock = clock
        self._readings: dict[str, JobReading] = {}

    def reading(self, job: JobView) -> JobReading:
        """Return the answers for a job's latest snapshot. Each snapshot has one object, and so has the job's end."""
        has_ended = job.facts().ended_at is not None
        snapshots = job.snapshots()
        at = snapshots[-1].at if snapshots else None
        known = self._readings.get(job.id)
        if known is None or known.job is not job or (known.at, known.has_ended) != (at, has_ended):
            visible = {each.id for each in self.board.jobs()}
            self._readings = {id_: each for id_, each in self._readings.items() if id_ in visible}
            known = self._readings[job.id] = JobReading(job, snapshots)
        return known

    def overview(self, job: JobView) -> Overview:
        """Return the content of a job's page."""
        reading, now = self.reading(job), self._clock()
        return Overview(
            at=reading.at,
            now=now,
            job=summary(job, now),
            attempt=reading.attempt,
            diagnosis=verdict(job.facts(), reading),
            vertices=reading.vertices,
            edges=reading.edges,
            subtasks=reading.top(TOP),
            lag=reading.lag,
            unread=reading.unread,
            profile=profile_summary(job.topology, job.last_profile()),
            checkpoints=_checkpoints(job.checkpoints()),
            has_report=self.board.report is not None,
        )

    # --- the answers

    def jobs(self, asked: Asked) -> Jobs:
        return Jobs(jobs=[summary(job, self._clock()) for job in asked.jobs])

    def job(self, asked: Asked) -> JobAnswer:
        job, reading = asked.job, asked.reading
        about = summary(job, self._clock())
        return JobAnswer(
            **{name: getattr(about, name) for name in about.__struct_fields__},
            attempt=reading.attempt,
            options=dict(job.options),
            versions=dict(job.versions),
            vertices=reading.vertices,
            edges=reading.edges,
        )

    def vertex(self, asked: Asked) -> VertexAnswer:
        return asked.vertex

    def subtasks(self, asked: Asked) -> Subtasks:
        of_vertex = [each for each in asked.reading.subtasks if each.vertex == asked.vertex.id]
        offset, limit = int(asked.query.number("offset")), int(asked.query.number("limit"))
        return Subtasks(total=len(of_vertex), offset=offset, subtasks=of_vertex[offset : offset + limit])

    def backpressure(self, asked: Asked) -> Backpressure:
        vertex, some = asked.vertex, self.subtasks(asked)
        reading = asked.reading
        return Backpressure(
            status="pending" if reading.window is None else "ok",
            level=vertex.level,
            end_timestamp=reading.at,
            total=some.total,
            offset=some.offset,
            subtasks=[
                SubtaskPressure(
                    subtask=each.subtask, **{name: getattr(each, name) for name in TimeShares.__struct_fields__}
                )
                for each in some.subtasks
            ],
        )

    def channels(self, asked: Asked) -> Channels:
        reading = asked.reading
        offset, limit = int(asked.query.number("offset")), int(asked.query.number("limit"))
        ranking = reading.channels
        return Channels(at=reading.at, total=len(ranking), offset=offset, channels=ranking.part(offset, limit))

    async def trace(self, asked: Asked) -> TraceAnswer:
        exchange, numbers = asked.query.text("exchange"), asked.query.number
        seconds = numbers("seconds")
        try:
            answer = asked.job.trace_channel(exchange, int(numbers("producer")), int(numbers("consumer")), seconds)
            return _trace(asked.job, await _answered(answer, seconds))
        except TraceError as error:
            raise Refusal(409, error.message) from None

    async def flame_graph(self, asked: Asked) -> FlameGraph:
        operators = _operators(asked)
        subtask = int(asked.query.number("subtaskindex")) if asked.query.texts("subtaskindex") else None
        seconds, job, last = asked.query.number("seconds"), asked.job, asked.job.last_profile()
        is_known = last is not None and last.operator in operators and subtask in {None, last.subtask}
        if last is not None and is_known and not seconds:
            return flame_graph(job.topology, last)
        operator, busiest = asked.reading.busiest(asked.vertex.id, operators)
        seconds = seconds or _PROFILE
        try:
            answer = job.profile(operator, busiest if subtask is None else subtask, seconds)
            return flame_graph(job.topology, await _answered(answer, seconds))
        except ProfileError as error:
            raise Refusal(409, error.message) from None

    def diagnosis(self, asked: Asked) -> Diagnosis:
        return verdict(asked.job.facts(), asked.reading)

    def metrics(self, asked: Asked) -> MetricsAnswer:
        shown: dict[str, Any] = {name: value for name, value in asked.job.metrics().items() if name != "tasks"}
        bounded = {name: value[:_TASKMANAGERS] if isinstance(value, list) else value for name, value in shown.items()}
        return MetricsAnswer(at=asked.reading.at, attempt=asked.reading.attempt, metrics=bounded)

    def checkpoints(self, asked: Asked) -> CheckpointsAnswer:
        return CheckpointsAnswer(checkpoints=_checkpoints(asked.job.checkpoints()))

    def series(self, asked: Asked) -> SeriesAnswer:
        names = asked.query.texts("name")
        if not names:
            return self._series_names(asked)
        if len(names) > MOST_SERIES:
            raise Refusal(400, f"{len(names)} series are too many: ask for at most {MOST_SERIES} at once")
        begin, end = asked.query.number("from"), asked.query.number("to") or math.inf
        most = max(1, int(asked.query.number("points")))
        found = [(name, thinned(asked.job.series(name, begin, end), most)) for name in names]
        return SeriesAnswer(
            total=len(names), names=names, series=[SeriesPoints(name=name, points=p) for name, p in found]
        )

    def _series_names(self, asked: Asked) -> SeriesAnswer:
        parts = asked.query.texts("contains")
        found = [name for name in asked.job.series_names() if all(part in name for part in parts)]
        return SeriesAnswer(total=len(found), names=found[: int(asked.query.number("limit"))], series=[])


def summary(job: JobView, now: float) -> JobSummary:
    facts = job.facts()
    end = now if facts.ended_at is None else facts.ended_at
    return JobSummary(
        id=job.id,
        name=job.name,
        state=facts.state,
        started_at=facts.started_at,
        ended_at=facts.ended_at,
        duration_s=0.0 if facts.started_at is None else round(max(0.0, end - facts.started_at), 3),
        restarts=facts.restarts,
        error=None if facts.error is None else facts.error[:_ERROR],
    )


def verdict(facts: JobFacts, reading: JobReading) -> Diagnosis:
    """Return the job's diagnosis. Its sentence is the first one on the page.

    While the job restarts there are no findings: they would describe the attempt that has failed.
    """
    findings = reading.finding_answers()
    if facts.ended_at is not None:
        return Diagnosis(severity="ended", sentence=_end(facts), at=reading.at, findings=findings)
    if facts.state == "RESTARTING":
        return Diagnosis(severity="pending", sentence="The job restarts after a failure.", at=reading.at, findings=[])
    if findings:
        return Diagnosis(severity=findings[0].severity, sentence=findings[0].sentence, at=reading.at, findings=findings)
    state = "pending" if reading.window is None else "ok"
    return Diagnosis(
        severity="pending" if reading.window is None else "ok", sentence=_VERDICTS[state], at=reading.at, findings=[]
    )


def _end(facts: JobFacts) -> str:
    if facts.state == RECORDED:
        return "This is a recording. It does not say how the job ended."
    return f"The job is {facts.state}" + ("" if facts.error is None else f": {facts.error[:_ERROR]}")


def _operators(asked: Asked) -> list[str]:
    """Return the operator that a request names, or all operators of the vertex. Raises Refusal."""
    names, given = [each.name for each in asked.vertex.operators], asked.query.texts("operator")
    if given and given[-1] not in names:
        raise Refusal(400, f"vertex {asked.vertex.id} has no operator {given[-1][:100]!r}")
    return given[-1:] or names


async def _answered(answer: Future[_T], seconds: float) -> _T:
    """Return what TaskManagers answer to a request that takes `seconds` seconds. Raises Refusal if they do not."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answer), seconds + _LATE)
    except TimeoutError:
        raise Refusal(504, f"the TaskManagers have not answered after {seconds + _LATE:g} s") from None


def _trace(job: JobView, trace: ChannelTrace) -> TraceAnswer:
    edge = next(each for each in job.topology.edges if each.name == trace.exchange)
    vertices = job.topology.vertices
    return TraceAnswer(
        exchange=trace.exchange,
        producer=trace.producer,
        consumer=trace.consumer,
        producer_name=f"{vertices[edge.source].name}[{trace.producer}]",
        consumer_name=f"{vertices[edge.target].name}[{trace.consumer}]",
        at=trace.at,
        seconds=trace.seconds,
        is_complete=trace.is_complete,
        events=[TraceEventAnswer(**event._asdict()) for event in trace.events],
    )


def _checkpoints(records: Sequence[CheckpointView]) -> list[CheckpointAnswer]:
    return [_checkpoint(record) for record in records]


def _checkpoint(record: CheckpointView) -> CheckpointAnswer:
    parts = record.parts

    def largest(name: str) -> float:
        return round(max((float(part.get(name) or 0.0) for part in parts.values()), default=0.0), 4)

    return CheckpointAnswer(
        id=record.checkpoint,
        kind=record.kind,
        triggered_at=record.triggered_at,
        duration_s=round(record.duration, 4),
        size_bytes=record.size,
        failure=None if record.failure is None else record.failure[:_ERROR],
        tasks=len(parts),
        unaligned=any(part.get("unaligned") for part in parts.values()),
        slowest=max(parts, key=lambda task: float(parts[task].get("completed_s") or 0.0), default=None),
        start_delay_s=largest("start_delay_s"),
        alignment_s=largest("alignment_s"),
        sync_s=largest("sync_s"),
        async_s=largest("async_s"),
    )


def thinned(points: Sequence[Point], most: int) -> list[tuple[float, float, float, float]]:
    """Join neighbours until at most `most` points are left. A peak stays visible as the largest value.

    >>> thinned([Point(0.0, 1.0, 1.0, 1.0), Point(1.0, 3.0, 3.0, 3.0)], 1)
    [(0.0, 1.0, 2.0, 3.0)]
    """
    step = max(1, math.ceil(len(points) / most))
    joined = (points[at : at + step] for at in range(0, len(points), step))
    return [
        (
            part[0].begin,
            min(each.least for each in part),
            sum(each.mean for each in part) / len(part),
            max(each.largest for each in part),
        )
        for part in joined
    ]
