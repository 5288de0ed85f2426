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
    FlameGraph,
    JobAnswer,
    Jobs,
    MetricsAnswer,
    SeriesAnswer,
    Subtasks,
    TraceAnswer,
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
    """A path whose answer is not JSON."""

    path: str
    media_type: str
    meaning: str


_PAGE: Final = (
    Parameter("offset", int, "The number of the first subtask.", 0, 1 << 20),
    Parameter("limit", int, "The largest number of subtasks in the answer.", 100, MOST_SUBTASKS),
)
_CHANNELS: Final = (
    Parameter("offset", int, "The rank of the first channel. Rank 0 waits longest.", 0, 1 << 20),
    Parameter("limit", int, "The largest number of channels in the answer.", MOST_CHANNELS, MOST_CHANNELS),
)
_TRACE: Final = (
    Parameter("exchange", str, "The name of its exchange, `operator -> operator`.", most=1),
    Parameter("producer", int, "The subtask that sends.", 0, 1 << 20),
    Parameter("consumer", int, "The subtask that receives.", 0, 1 << 20),
    Parameter("seconds", float, "How long.", 2, 10),
)
_FLAME: Final = (
    Parameter("operator", str, "An operator of the vertex. Without it, the operator that works most."),
    Parameter("subtaskindex", int, "A subtask. Without it, the subtask that works most.", most=1 << 20),
    Parameter(
        "seconds", float, "Take a new profile for so long. 0: the last profile; a new one only if there is none.", 0, 60
    ),
)
_SERIES: Final = (
    Parameter("name", str, "The name of a series, up to 20 times. Without it, the answer lists the names of series."),
    Parameter("from", float, "The begin, in seconds since the epoch.", 0),
    Parameter("to", float, "The end, in seconds since the epoch. 0 means now.", 0),
    Parameter("points", int, "The largest number of points of each series. Neighbours are joined.", 600, MOST_POINTS),
    Parameter("contains", str, "List only the names that contain this text."),
    Parameter("limit", int, "The largest number of names.", 100, MOST_NAMES),
)

JSON_ROUTES: Final = (
    JsonRoute("/jobs", Rest.jobs, Jobs, "The running jobs, and the last ten jobs that ended."),
    JsonRoute("/jobs/{job}", Rest.job, JobAnswer, "A job with its graph."),
    JsonRoute("/jobs/{job}/vertices/{vertex}", Rest.vertex, VertexAnswer, "A chain of operators."),
    JsonRoute(
        "/jobs/{job}/vertices/{vertex}/backpressure", Rest.backpressure, Backpressure,
        "How long the subtasks of a vertex wait for room in their outputs.", _PAGE,
    ),
    JsonRoute(
        "/jobs/{job}/vertices/{vertex}/flamegraph", Rest.flame_graph, FlameGraph,
        "A profile of one subtask of an operator: its five hottest lines, and its flame graph.", _FLAME,
    ),
    JsonRoute("/jobs/{job}/vertices/{vertex}/subtasks", Rest.subtasks, Subtasks, "The subtasks of a vertex.", _PAGE),
    JsonRoute("/jobs/{job}/channels", Rest.channels, Channels, "The channels that wait longest.", _CHANNELS),
    JsonRoute(
        "/jobs/{job}/channels/trace", Rest.trace, TraceAnswer,
        "Trace a channel from now on: data, backlog and credit, event by event.", _TRACE,
    ),
    JsonRoute("/jobs/{job}/metrics", Rest.metrics, MetricsAnswer, "The counters of a job, without its tasks."),
    JsonRoute("/jobs/{job}/checkpoints", Rest.checkpoints, CheckpointsAnswer, "The last ten checkpoints."),
    JsonRoute("/jobs/{job}/diagnosis", Rest.diagnosis, Diagnosis, "The places that limit a job, and what to do."),
    JsonRoute("/jobs/{job}/series", Rest.series, SeriesAnswer, "Time series of the last two days.", _SERIES),
)  # fmt: skip

#: The paths that let a job do something. Pages of other sites may not ask for them.
WORK: Final = frozenset({"/jobs/{job}/channels/trace", "/jobs/{job}/vertices/{vertex}/flamegraph"})
RECORDING: Final = OtherRoute(
    "/jobs/{job}/recording", "application/gzip", "The last ten minutes as a file, for `headgate doctor`."
)
PAGE: Final = OtherRoute(
    "/jobs/{job}/page", "text/html", "The page as one HTML file of at most 5 MB, which fetches nothing."
)
REPORT: Final = OtherRoute(
    "/report", "text/html", "The report of the program, such as that of `headgate lab`. Few programs have one."
)
EVENTS: Final = OtherRoute(
    "/jobs/{job}/events",
    "text/event-stream",
    "An event `overview` for each change, once a second; its data is the schema `Overview`. After the job's end an "
    "event `end`.",
)
METRICS: Final = OtherRoute("/metrics", "text/plain", "The metrics of all jobs, for Prometheus.")
OTHER_ROUTES: Final = (RECORDING, PAGE, REPORT, EVENTS, METRICS)
