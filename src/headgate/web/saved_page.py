"""The page of a job as one HTML file. It shows what the page showed, and fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final

import msgspec

from headgate.errors import RecordingError
from headgate.observe.history import Point
from headgate.observe.topology import VertexShape
from headgate.web.flame_answer import flame_graph
from headgate.web.job_board import JobBoard
from headgate.web.job_reading import JobReading
from headgate.web.job_view import JobView
from headgate.web.page_bundle import bundled
from headgate.web.rest import Rest

#: The most bytes of the file. The series of subtasks take the bytes that the rest leaves.
MOST_BYTES: Final = 5_000_000
#: The most subtasks and exchanges whose series are in the file, and the most channels.
MOST_SUBTASKS: Final = 50
MOST_EDGES: Final = 50
MOST_CHANNELS: Final = 1000
#: The most points of a series: half of them for its last 15 minutes, half for all the time before.
_POINTS: Final = 300
_LATEST: Final = 900.0
#: Digits of a value.
_DIGITS: Final = 4
#: The counters that the page draws of a subtask and of the first operator of its chain.
OF_TASK: Final = (
    "busy_s", "soft_backpressured_s", "hard_backpressured_s", "throttle_wait_s", "idle_s", "cpu_s", "in_pool_usage",
    "input_floating_usage", "input_exclusive_usage", "out_pool_usage", "input_queue",
)  # fmt: skip
OF_OPERATOR: Final = ("rows_in", "rows_out", "late_rows", "lag_s")
#: The counters that the page draws of an exchange.
OF_EDGE: Final = ("rows_out", "bytes_out")

_PAGE: Final = """<!doctype html>
<html lang="en">
<!--
{licences}
-->
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="default-src 'none'; script-src {scripts}; style-src {styles}; \
base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Headgate</title>
{head}
</head>
<body>
{body}
<script type="application/json" id="saved">{saved}</script>
{tail}
</body>
</html>
"""


def saved_page(job: JobView) -> bytes:
    """Return the file for a job, at most `MOST_BYTES` long. It has what the page shows now, and no rows or keys."""
    board = JobBoard()
    board.add(job)
    rest = Rest(board, time.time)
    reading, profile = rest.reading(job), job.last_profile()
    saved: dict[str, Any] = {
        "overview": rest.overview(job),
        "channels": reading.channels.part(0, MOST_CHANNELS),
        "profile": None if profile is None else flame_graph(job.topology, profile),
        "series": [],
    }
    size = len(_html(b"")) + len(_text(saved))
    for group in _groups(job, reading):
        size += len(_text(group)) + 1
        if size > MOST_BYTES:
            break
        saved["series"].append(group)
    return _html(_text(saved))


def save_page(job: JobView, path: str | os.PathLike[str]) -> None:
    """Write the file for a job, which only its owner may read. Raises RecordingError."""
    page = saved_page(job)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(page)
    except OSError as error:
        raise RecordingError(f"cannot write the page {os.fspath(path)}: {error}") from None


def _text(value: object) -> bytes:
    """Return a value as JSON in which no text can end the script element."""
    return msgspec.json.encode(value).replace(b"<", b"\\u003c")


def _groups(job: JobView, reading: JobReading) -> Iterator[dict[str, Any]]:
    """Yield the series of the exchanges, then those of each subtask, in the order of `JobReading.top`."""
    edges = [f"edge/{edge.name}/{counter}" for edge in job.topology.edges[:MOST_EDGES] for counter in OF_EDGE]
    yield _columns({name: job.series(name, -math.inf, math.inf) for name in edges})
    for task in reading.top(MOST_SUBTASKS):
        vertex = job.topology.vertices[task.vertex]
        yield _columns({name: job.series(name, -math.inf, math.inf) for name in _names(vertex, task.subtask)})


def _names(vertex: VertexShape, subtask: int) -> list[str]:
    of_task = [f"task/{vertex.name}[{subtask}]/{counter}" for counter in OF_TASK]
    emitting = [each.name for each in vertex.operators if each.kind != "sink"][-1:]
    of_task += [f"operator/{name}[{subtask}]/watermark_lag_s" for name in emitting]
    return of_task + [f"operator/{vertex.operators[0].name}[{subtask}]/{counter}" for counter in OF_OPERATOR]


def _columns(series: dict[str, Sequence[Point]]) -> dict[str, Any]:
    """Return the times, and each series' mean from each time to the next time. None stands for no value."""
    times = sorted({point.begin for points in series.values() for point in points})
    edges = _edges(times)
    return {
        "times": edges[:-1],
        "values": {name: _means(points, edges) for name, points in series.items() if points},
    }


def _edges(times: Sequence[float]) -> list[float]:
    """Return the begin of each bin, and the end of the last one."""
    if not times:
        return []
    recent = [at for at in times if at >= times[-1] - _LATEST]
    old = times[: len(times) - len(recent)]
    return [*_every(old), *_every(recent), math.nextafter(times[-1], math.inf)]


def _every(times: Sequence[float]) -> Sequence[float]:
    return times[:: max(1, math.ceil(2 * len(times) / _POINTS))]


def _means(points: Sequence[Point], edges: Sequence[float]) -> list[float | None]:
    means: list[float | None] = []
    at = 0
    for _, end in pairwise(edges):
        begin = at
        while at < len(points) and points[at].begin < end:
            at += 1
        mean = sum(point.mean for point in points[begin:at]) / (at - begin) if at > begin else None
        means.append(None if mean is None else float(f"{mean:.{_DIGITS}g}"))
    return means


def _html(saved: bytes) -> bytes:
    before, after = _frame()
    return before + saved + after


@cache
def _frame() -> tuple[bytes, bytes]:
    """Return the bytes of the page before the saved values, and the bytes after them."""
    page = files("headgate.web") / "page"
    modules = {each.name: each.read_text("utf-8") for each in page.iterdir() if each.name.endswith(".js")}
    vendor = page / "vendor"
    libraries = [(vendor / name).read_text("utf-8") for name in ("uPlot.iife.min.js", "dagre.min.js")]
    scripts = [*libraries, bundled("app.js", modules)]
    styles = [(vendor / "uPlot.min.css").read_text("utf-8"), (page / "style.css").read_text("utf-8")]
    licences = [each.read_text("utf-8") for each in vendor.iterdir() if each.name.endswith("LICENSE.txt")]
    body = (page / "index.html").read_text("utf-8").partition("<body>")[2].partition("</body>")[0]
    assert not any("</script" in each for each in scripts)
    html = _PAGE.format(
        licences="\n".join(licences).replace("--", "- -"),
        scripts=" ".join(map(_hash, scripts)),
        styles=" ".join(map(_hash, styles)),
        head="\n".join(f"<style>{each}</style>" for each in styles),
        body=body.strip(),
        tail="\n".join(f"<script>{each}</script>" for each in scripts),
        saved="\0",
    )
    before, _, after = html.encode().partition(b"\0")
    return before, after


def _hash(text: str) -> str:
    """Return the source expression of a content security policy that allows a text within the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
