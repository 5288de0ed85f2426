"""`RequestSender`: a thread that sends requests over one connection, and repeats those that may succeed later."""

from __future__ import annotations

import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from headgate.connectors.webhook.endpoint import Endpoint, connection_errors, http_library
from headgate.connectors.webhook.request_queue import RequestQueue, RowsRequest
from headgate.errors import SinkError

log = logging.getLogger(__name__)

#: The answers that say "try again later".
_PASSING: Final = frozenset((429, 502, 503, 504))
#: Seconds of the first and of the longest wait before a request is repeated, if the service names none.
_FIRST_WAIT: Final = 0.25
_LONGEST_WAIT: Final = 30.0
#: The most bytes of an answer that are read, and the most characters of it that an error shows.
_MOST_READ: Final = 16 << 10
_MOST_SHOWN: Final = 300
#: Seconds between two warnings of a sender.
_WARNING_INTERVAL: Final = 60.0
#: What to do about an answer.
_ADVICE: Final = {
    400: "check format= and the columns and types of the rows",
    401: "check the credentials in headers=",
    403: "check the credentials in headers=, and what they allow",
    404: "check the path of url=",
    405: "give a url= that takes POST",
    410: "check the path of url=",
    413: "lower batch_rows= or batch_bytes=",
    415: "check format=, or set the header Content-Type in headers=",
    422: "check format= and the columns and types of the rows",
}


class Pace:
    """The moments at which requests may start, at most so many requests and rows per second. None: no limit.

    The senders of a subtask share it. The lock `_mutex` protects `_free_at`.
    """

    def __init__(self, requests_per_s: float | None, rows_per_s: float | None) -> None:
        self._interval = 1 / requests_per_s if requests_per_s else 0.0
        self._row_interval = 1 / rows_per_s if rows_per_s else 0.0
        self._mutex = threading.Lock()
        self._free_at = 0.0

    def wait(self, now: float, rows: int) -> float:
        """Return after how many seconds a request of `rows` rows may start, and reserve its time."""
        with self._mutex:
            start = max(now, self._free_at)
            self._free_at = start + max(self._interval, rows * self._row_interval)
            return start - now


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The outcome of a request. With `may_pass`, a repetition after `retry_after` seconds or later may succeed."""

    text: str
    is_success: bool = False
    may_pass: bool = False
    retry_after: float = 0.0


class RequestSender:
    """Sends requests of a queue, one after the other, on a thread of its own.

    `key_of` returns the idempotency key of a request, which goes into the header `key_header`. Without `key_header`
    (None), requests have no key. A request that fails for a reason that may pass is repeated for `retry_for` seconds
    after its first failure.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        queue: RequestQueue,
        pace: Pace,
        *,
        headers: dict[str, str],
        key_header: str | None,
        key_of: Callable[[RowsRequest], str],
        retry_for: float,
    ) -> None:
        self._endpoint = endpoint
        self._queue = queue
        self._pace = pace
        self._headers = headers
        self._key_header = key_header
        self._key_of = key_of
        self._retry_for = retry_for
        self._connection: Any = endpoint.connection()
        self._next_warning = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """Cut the connection, which ends a wait for the service. The queue must be closed."""
        opened = self._connection.sock
        if opened is not None:
            with suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most `seconds`. A thread that still connects ends later."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (request := self._queue.take()) is not None and self._deliver(request):
                self._queue.delivered()
        except BaseException as error:
            self._queue.fail(error)
        finally:
            self._connection.close()

    def _deliver(self, request: RowsRequest) -> bool:
        """Send a request until the service has it. Return False if the queue was closed before. Raises SinkError."""
        headers = self._headers if self._key_header is None else {
            **self._headers, self._key_header: self._key_of(request),
        }  # fmt: skip
        failed_at, tries = 0.0, 0
        while self._queue.pause(self._pace.wait(time.monotonic(), request.rows)):
            answer = self._sent(request.body, headers)
            if answer.is_success:
                return True
            if self._queue.is_closed:
                return False
            if not answer.may_pass:
                raise SinkError(f"POST {self._endpoint}: {answer.text}")
            wait = max(answer.retry_after, min(_LONGEST_WAIT, _FIRST_WAIT * 2**tries) * random.uniform(0.5, 1))
            if not tries:  # the time before does not count: the first attempt may wait long for the limits of the rate
                failed_at = time.monotonic()
            tries += 1
            if time.monotonic() + wait - failed_at > self._retry_for:
                raise SinkError(f"POST {self._endpoint}: {answer.text}{self._given_up(answer, tries)}")
            self._warn(answer)
            if not self._queue.pause(wait):
                return False
        return False

    def _given_up(self, answer: _Answer, tries: int) -> str:
        asked = f" (the service asks to wait for {answer.retry_after:g} s)" if answer.retry_after else ""
        times = "once" if tries == 1 else f"{tries} times"
        return f"; tried {times}, for at most retry_for= ({self._retry_for:g} s){asked}; check that the service runs"

    def _warn(self, answer: _Answer) -> None:
        if time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + _WARNING_INTERVAL
            log.warning("POST %s: %s; the sink tries again", self._endpoint, answer.text)

    def _sent(self, body: bytes, headers: dict[str, str]) -> _Answer:
        """Send a request once, and read the answer. Keeps the connection if the service does."""
        connection = self._connection
        try:
            if not connection.is_connected:  # never opened, or the service has closed it
                connection.close()
            connection.request(
                "POST", self._endpoint.target, body, headers, preload_content=False, decode_content=False
            )
            response = connection.getresponse()
            return self._answered(response, self._read(response))
        except Exception as error:
            connection.close()
            if isinstance(error, connection_errors()) or self._queue.is_closed:  # `interrupt` causes other errors too
                return connection_failed(self._endpoint, error)
            raise

    def _read(self, response: Any) -> bytes:
        """Return the beginning of an answer. Closes the connection if the answer is long, or comes slowly."""
        until, read = time.monotonic() + self._endpoint.timeout, b""
        while len(read) < _MOST_READ and time.monotonic() < until:
            piece = response.read1(_MOST_READ - len(read))
            if not piece:
                return read
            read += piece
        self._connection.close()
        return read

    def _answered(self, response: Any, body: bytes) -> _Answer:
        status: int = response.status
        if 200 <= status < 300:
            return _Answer(text="", is_success=True)
        try:
            phrase = f" {HTTPStatus(status).phrase}"
        except ValueError:
            phrase = ""
        text = f"status {status}{phrase}"
        shown = " ".join(self._endpoint.without_secrets(body.decode(errors="replace")).split())
        if shown:
            text += f": {shown[:_MOST_SHOWN]!r}"
        if status in _PASSING:
            return _Answer(text=text, may_pass=True, retry_after=_seconds(response.headers.get("Retry-After")))
        if 300 <= status < 400:
            advice = "the service names another address, which the sink does not follow; set url= to that address"
        else:
            default = "see the log of the service" if status >= 500 else "see the documentation of the service"
            advice = _ADVICE.get(status, default)
        return _Answer(text=f"{text}; {advice}")


def connection_failed(endpoint: Endpoint, error: Exception) -> _Answer:
    """Return the answer for an error of a connection."""
    exceptions = http_library().exceptions
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)) and not isinstance(
        error, exceptions.NewConnectionError
    ):
        return _Answer(text=f"no answer within timeout= ({endpoint.timeout:g} s)", may_pass=True)
    text = str(error)
    if isinstance(error, exceptions.NewConnectionError):  # begins with the connection's address in memory
        text = text.partition(": ")[2] or text
    text = endpoint.without_secrets(text or type(error).__name__)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _Answer(text=f"{text}; check the name in url=, or set SSL_CERT_FILE to the file of your authority")
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return _Answer(text=f"{text}; the service does not speak TLS: check the port, or give url= with http://")
    return _Answer(text=text, may_pass=True)


def _seconds(retry_after: str | None) -> float:
    """Return a header `Retry-After` in seconds, or 0 if there is none, or if it makes no sense."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return 0.0
