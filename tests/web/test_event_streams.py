"""Server-sent events over HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Any

import jsonschema

from headgate.web.event_streams import STREAMS
from tests.runtime.jobs import eventually
from tests.web.conftest import Serve, Served
from tests.web.fake_job import slow_job

EVENTS = "/jobs/1f-0a0b0c0d/events"


class Stream:
    """One open stream, read event by event."""

    def __init__(self, served: Served) -> None:
        self.connection = http.client.HTTPConnection(served.server.host, served.server.port, timeout=30)
        self.connection.request("GET", EVENTS)
        self.reply = self.connection.getresponse()

    def event(self) -> tuple[str, dict[str, Any]]:
        """Return the next event. A comment is not one."""
        name = ""
        while line := self.reply.readline().decode().rstrip():
            kind, _, text = line.partition(": ")
            if kind == "event":
                name = text
            elif kind == "data":
                self.reply.readline()
                return name, json.loads(text)
        raise EOFError

    def close(self) -> None:
        self.connection.close()


def test_the_first_event_has_all_that_the_page_shows(serve: Serve) -> None:
    served = serve(slow_job(), fresh=True)
    stream = Stream(served)
    name, overview = stream.event()
    stream.close()
    assert (name, stream.reply.headers["content-type"]) == ("overview", "text/event-stream; charset=utf-8")
    assert overview["diagnosis"]["findings"][0]["operator"] == "warehouse"
    assert overview["subtasks"][0]["role"] == "cause"
    document = served.get("/openapi.json").json
    schema = {"$ref": "#/components/schemas/Overview", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(overview)


def test_events_go_on_until_the_job_has_ended(serve: Serve) -> None:
    job = slow_job()
    stream = Stream(serve(job, fresh=True))
    assert stream.event()[1]["job"]["state"] == "RUNNING"
    job.end(1020.0)
    while (event := stream.event())[0] == "overview":
        last = event[1]
    assert last["job"]["state"] == "FINISHED"
    assert event == ("end", {})
    assert stream.reply.read() == b""
    stream.close()


def test_too_many_streams_are_refused_until_one_closes(serve: Serve) -> None:
    served = serve(slow_job(), fresh=True)
    streams = [Stream(served) for _ in range(STREAMS)]
    assert {stream.event()[0] for stream in streams} == {"overview"}
    refused = Stream(served)
    assert (refused.reply.status, refused.reply.headers["retry-after"]) == (503, "5")
    refused.close()
    streams.pop().close()

    def another() -> bool:
        stream = Stream(served)
        stream.close()
        return stream.reply.status == 200

    eventually(another)
    for stream in streams:
        stream.close()


def test_a_server_stops_while_streams_are_open(serve: Serve) -> None:
    served = serve(slow_job(), fresh=True)
    stream = Stream(served)
    stream.event()
    served.server.stop()
    eventually(lambda: not served.server.is_alive)  # `stop` waits for some seconds, which a busy machine may exceed
    stream.close()
