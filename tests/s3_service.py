"""An S3 service in this process, on loopback: moto's, which a test can make fail.

A real service checks for an object and stores it in one step; moto takes two steps. Conditional puts therefore pass one
at a time.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

#: A fault: gets the request, a function that passes it on, and `start_response`; returns the answer's body.
Fault = Callable[[dict[str, Any], Callable[[], Iterable[bytes]], Any], Iterable[bytes]]


#: The ports of the running services.
PORTS: set[int] = set()


class S3Service:
    """An S3 service. `environ` points programs to it. Requests pass through `fault` while there is one.

    `_one_at_a_time` makes each conditional put atomic; no other lock is taken inside it.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = None
        # Not through moto's dispatcher, which looks for the service of each request in its folders.
        self._application = create_backend_app("s3")
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        PORTS.add(self._server.server_port)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.environ = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }
        self.client: Any = boto3.session.Session("test", "test", region_name="eu-west-1").client(
            "s3", endpoint_url=self.endpoint
        )
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def bucket(self) -> str:
        """Create a bucket and return its URI."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        return f"s3://{name}"

    def keys(self, uri: str) -> list[str]:
        """Return the keys of the objects whose URIs begin with `uri`, in order."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    def close(self) -> None:
        self.client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        PORTS.remove(self._server.server_port)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        def passed_on() -> Iterable[bytes]:
            with self._one_at_a_time if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
                answer: Iterable[bytes] = self._application(environ, start_response)
                return answer

        fault = self.fault
        return passed_on() if fault is None else fault(environ, passed_on, start_response)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass
