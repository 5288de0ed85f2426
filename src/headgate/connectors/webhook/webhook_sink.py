"""The webhook sink: subtasks send rows by HTTP, at least once."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.connectors.json_text import check_json_types, json_texts
from headgate.connectors.webhook.endpoint import Endpoint, connection_errors
from headgate.connectors.webhook.request_queue import BatchLimits, BodyFormat, RequestQueue, RowsRequest, RowTexts
from headgate.connectors.webhook.request_sender import Pace, RequestSender, connection_failed
from headgate.errors import SinkError
from headgate.state import shapes

#: The rows that become text at the same time.
_ROWS: Final = 1 << 12
#: How long `close` waits for all sending threads together, in seconds.
_CLOSE_WAIT: Final = 0.5
_PREPARED: Final = shapes.fields({"run": shapes.text})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """How requests are made. Rates are those of all subtasks together; durations are in seconds."""

    limits: BatchLimits
    form: BodyFormat
    retry_for: float
    requests_per_s: float | None
    rows_per_s: float | None
    concurrency: int
    key_header: str | None


class WebhookSink(Sink):
    """A sink that sends rows to a service by HTTP; see `hg.sinks.webhook`.

    `_run` names this run of the sink, also in the programs that resume it. Idempotency keys depend on it.
    """

    def __init__(self, endpoint: Endpoint, options: WebhookOptions) -> None:
        self._endpoint = endpoint
        self._options = options
        self._run = ""

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check the rows, and that the service takes connections. Raises PlanError and SinkError."""
        check_json_types(schema)
        self._run = job
        connection = self._endpoint.connection()
        try:
            connection.connect()
        except connection_errors() as error:
            raise SinkError(f"{self._endpoint}: {connection_failed(self._endpoint, error).text}; check url=") from None
        finally:
            connection.close()

    def prepared(self) -> Any:
        """Return the name of the run."""
        return {"run": self._run}

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Continue the run of another program."""
        _PREPARED(prepared, "what the sink prepared")
        self.prepare(prepared["run"], schema)

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer with sending threads of its own."""
        return _WebhookWriter(self._endpoint, self._options, self._run, context)


class _WebhookWriter(SinkWriter):
    """The writer of one subtask. It makes requests of the rows, and waits while too many requests wait."""

    def __init__(self, endpoint: Endpoint, options: WebhookOptions, run: str, context: WriterContext) -> None:
        self._context = context
        self._between = options.form.between
        self._queue = RequestQueue(options.limits, options.form, context.checkpoint, options.concurrency)
        headers = {"User-Agent": "headgate", "Content-Type": options.form.content_type}
        given = {name.lower() for name in endpoint.headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in given}
        self._senders = [
            RequestSender(
                f"headgate-webhook-{context.operator}[{context.subtask}]",
                endpoint,
                self._queue,
                pace,
                headers={**headers, **endpoint.headers},
                key_header=options.key_header,
                key_of=partial(_key, run, context.operator, context.subtask),
                retry_for=options.retry_for,
            )
            for pace in [_pace(options, context.parallelism)] * options.concurrency
        ]
        #: Ends the threads, also if nobody closes the writer. The threads do not refer to the writer.
        self._end = weakref.finalize(self, _end, self._queue, self._senders)
        self._end.atexit = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Make requests of the rows. Waits while too many requests wait."""
        for begin in range(0, batch.num_rows, _ROWS):
            texts = RowTexts(json_texts(batch.slice(begin, _ROWS)), self._between)
            taken = 0
            while taken < len(texts):
                self._wait_until_room()
                taken = self._queue.add(texts, taken)

    def _wait_until_room(self) -> None:
        if not self._queue.has_room():
            self._context.wait_until(self._queue.has_room)

    def flush(self, checkpoint: int) -> None:
        """Wait until the service has all rows."""
        self.finish()
        self._queue.begin(checkpoint + 1)

    def finish(self) -> None:
        """Wait until the service has all rows."""
        self._queue.cut()
        self._context.wait_until(self._queue.is_delivered)

    def close(self) -> None:
        """Drop requests that the service does not have. After a checkpoint there are none."""
        self._end()
        for sender in self._senders:
            sender.join(_CLOSE_WAIT / len(self._senders))


def _key(run: str, operator: str, subtask: int, request: RowsRequest) -> str:
    return request.key(run, operator, subtask)


def _end(queue: RequestQueue, senders: Sequence[RequestSender]) -> None:
    queue.close()
    for sender in senders:
        sender.interrupt()


def _pace(options: WebhookOptions, parallelism: int) -> Pace:
    """Return the pace of one of so many subtasks: each takes an equal share."""
    shares = [None if rate is None else rate / parallelism for rate in (options.requests_per_s, options.rows_per_s)]
    return Pace(*shares)
