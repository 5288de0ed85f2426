"""The HTTP application: the REST interface, the events, the metrics for Prometheus and the page's files."""

from __future__ import annotations

import inspect
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from headgate.web.answers import Fault
from headgate.web.event_streams import PERIOD, EventStreams
from headgate.web.guard import App, Guard
from headgate.web.job_board import JobBoard
from headgate.web.job_view import JobView
from headgate.web.open_api import open_api
from headgate.web.page_files import page_files
from headgate.web.prometheus_export import exposition
from headgate.web.refusal import Refusal
from headgate.web.rest import Asked, Query, Rest
from headgate.web.routes import EVENTS, JSON_ROUTES, METRICS, PAGE, RECORDING, REPORT, WORK, JsonRoute, OtherRoute
from headgate.web.saved_page import saved_page

#: The report has its styles and pictures within itself. It needs no script.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
log = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Response]]


def application(board: JobBoard, host: str, port: int, token: str | None, *, period: float = PERIOD) -> App:
    """Return the application for the jobs of a board. The server listens on `host` and `port`."""
    rest = Rest(board)
    streams = EventStreams(rest, period)
    document = msgspec.json.encode(open_api(version("headgate")))
    routes = [Route(route.path, _json(rest, route), methods=["GET"]) for route in JSON_ROUTES]
    routes += [
        Route(RECORDING.path, _file(rest, RECORDING, _recording, "gz"), methods=["GET"]),
        Route(PAGE.path, _file(rest, PAGE, saved_page, "html"), methods=["GET"]),
        Route(REPORT.path, _report(board), methods=["GET"]),
        Route(EVENTS.path, _events(rest, streams), methods=["GET"]),
        Route(METRICS.path, _metrics(board), methods=["GET"]),
        Route("/openapi.json", _fixed(document, "application/json"), methods=["GET"]),
    ]
    routes += [Route(path, _fixed(*file), methods=["GET"]) for path, file in page_files().items()]
    handlers = {Refusal: _refused, HTTPException: _not_found, Exception: _failed}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host, port, token)


def _json(rest: Rest, route: JsonRoute) -> Handler:
    async def answer(request: Request) -> Response:
        if route.path in WORK and request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            raise Refusal(403, "the page of another site may not ask for this")
        query = Query(request.query_params.multi_items(), route.parameters)
        answer = route.answer(rest, Asked(rest, request.path_params, query))
        return _encoded(await answer if inspect.isawaitable(answer) else answer)

    return answer


def _job(rest: Rest, request: Request) -> JobView:
    return Asked(rest, request.path_params, Query(request.query_params.multi_items(), ())).job


def _file(rest: Rest, route: OtherRoute, content: Callable[[JobView], bytes], suffix: str) -> Handler:
    async def answer(request: Request) -> Response:
        job = _job(rest, request)
        made = await run_in_threadpool(content, job)
        name = f"attachment; filename=headgate-{job.id}.{suffix}"
        return Response(made, media_type=route.media_type, headers={"content-disposition": name})

    return answer


def _recording(job: JobView) -> bytes:
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        path = Path(folder) / "recording.gz"
        job.save_recording(path)
        return path.read_bytes()


def _events(rest: Rest, streams: EventStreams) -> Handler:
    async def answer(request: Request) -> Response:
        job = _job(rest, request)
        streams.reserve()
        return _Stream(streams.events(job), streams.release)

    return answer


class _Stream(StreamingResponse):
    """A response of events. It calls `release` when the connection is closed, also before the first event."""

    def __init__(self, events: AsyncIterator[bytes], release: Callable[[], None]) -> None:
        super().__init__(events, media_type=EVENTS.media_type)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


def _metrics(board: JobBoard) -> Handler:
    async def answer(request: Request) -> Response:
        body, media_type = await run_in_threadpool(exposition, board, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    return answer


def _report(board: JobBoard) -> Handler:
    async def answer(_request: Request) -> Response:
        if board.report is None:
            raise Refusal(404, "this program has no report; headgate lab has one while it runs")
        headers = {"content-security-policy": _REPORT_POLICY}
        return Response(board.report, media_type=REPORT.media_type, headers=headers)

    return answer


def _fixed(content: bytes, media_type: str) -> Handler:
    async def answer(_request: Request) -> Response:
        return Response(content, headers={"content-type": media_type})

    return answer


def _encoded(answer: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    headers = {"retry-after": "5"} if error.status == 503 else None
    response = _encoded(Fault(errors=[error.message]), error.status)
    response.headers.update(headers or {})
    return response


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _encoded(Fault(errors=["there is nothing here; /openapi.json lists all paths"]), error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    log.warning("%s could not be answered: %s: %s", request.url.path, type(error).__name__, error)
    return _encoded(Fault(errors=["this could not be answered; the log of the driver says why"]), 500)
