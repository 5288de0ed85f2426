"""The table of all paths of the REST interface. The server and `/openapi.json` are made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headgate.web.answers import (
    Backpressure,
    Channels,
    CheckpointsAnswer,
    Diagnosis,
    JobAnswer,
    Jobs,
    MetricsAnswer,
    SeriesAnswer,
    Subtasks,
    VertexAnswer,
)
from headgate.web.rest import MOST_CHANNELS, MOST_NAMES, MOST_POINTS, MOST_SUBTASKS, Asked, Parameter, Rest


@dataclass(frozen=True, slots=True)
class JsonRoute:
    """A path, the method that answers it, the type of its answer, and the parameters of its query."""

    path: str
    answer: Callable[[Rest, Asked], Any]
    type: type
    meaning: str
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherRoute:
    """A path whose answer is no JSON."""

    path: str
    media_type: str
    meaning: str


_PAGE: Final = (
    Parameter("offset", int, "The first subtask.", 0, 1 << 20),
    Parameter("limit", int, "The most subtasks of the answer.", 100, MOST_SUBTASKS),
)
_CHANNELS: Final = (
    Parameter("offset", int, "The first rank.", 0, 1 << 20),
    Parameter("limit", int, "The most channels of the answer.", MOST_CHANNELS, MOST_CHANNELS),
)
_SERIES: Final = (
    Parameter("name", str, "A series; up to 20 of them. Without a name, the answer has the names that there are."),
    Parameter("from", float, "The begin, in seconds since the epoch.", 0),
    Parameter("to", float, "The end, in seconds since the epoch; 0: now.", 0),
    Parameter("points", int, "The most points of each series. Neighbours are joined.", 600, MOST_POINTS),
    Parameter("contains", str, "Part of the names that are listed."),
    Parameter("limit", int, "The most names.", 100, MOST_NAMES),
)

JSON_ROUTES: Final = (
    JsonRoute("/jobs", Rest.jobs, Jobs, "The jobs that run, and the last ten that ended."),
    JsonRoute("/jobs/{job}", Rest.job, JobAnswer, "A job with its graph."),
    JsonRoute("/jobs/{job}/vertices/{vertex}", Rest.vertex, VertexAnswer, "A chain of operators."),
    JsonRoute(
        "/jobs/{job}/vertices/{vertex}/backpressure", Rest.backpressure, Backpressure,
        "Where a vertex waits for room in its output.", _PAGE,
    ),
    JsonRoute("/jobs/{job}/vertices/{vertex}/subtasks", Rest.subtasks, Subtasks, "The subtasks of a vertex.", _PAGE),
    JsonRoute("/jobs/{job}/channels", Rest.channels, Channels, "The channels that wait most.", _CHANNELS),
    JsonRoute("/jobs/{job}/metrics", Rest.metrics, MetricsAnswer, "The counters of a job, without those of its tasks."),
    JsonRoute("/jobs/{job}/checkpoints", Rest.checkpoints, CheckpointsAnswer, "The last ten checkpoints."),
    JsonRoute("/jobs/{job}/diagnosis", Rest.diagnosis, Diagnosis, "What holds the job up, and what to do."),
    JsonRoute("/jobs/{job}/series", Rest.series, SeriesAnswer, "Time series of the last two days.", _SERIES),
)  # fmt: skip

RECORDING: Final = OtherRoute(
    "/jobs/{job}/recording", "application/gzip", "The last ten minutes as a file, for `headgate doctor`."
)
EVENTS: Final = OtherRoute(
    "/jobs/{job}/events",
    "text/event-stream",
    "An event `overview` for each change, once a second; its data is the schema `Overview`. After the job's end an "
    "event `end`.",
)
METRICS: Final = OtherRoute("/metrics", "text/plain", "The metrics of all jobs, for Prometheus.")
OTHER_ROUTES: Final = (RECORDING, EVENTS, METRICS)
