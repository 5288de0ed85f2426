"""The function `hg.sinks.webhook`."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Literal

from headgate.connectors.arguments import NUMBER_OR_NONE, TEXT_OR_NONE, WHOLE, check
from headgate.connectors.connector import Sink
from headgate.connectors.webhook.endpoint import Endpoint, http_library, is_header_name
from headgate.connectors.webhook.request_queue import FORMATS, BatchLimits
from headgate.connectors.webhook.webhook_sink import WebhookOptions, WebhookSink
from headgate.errors import ConfigError
from headgate.quantities import seconds, size


def sink(
    url: str,
    *,
    format: Literal["json", "json_lines"] = "json",
    headers: Mapping[str, str] | None = None,
    batch_rows: int = 500,
    batch_bytes: int | str = "1 mb",
    batch_delay: float | str = "1 s",
    timeout: float | str = "30 s",
    retry_for: float | str = "5 min",
    requests_per_s: float | None = None,
    rows_per_s: float | None = None,
    concurrency: int = 1,
    key_header: str | None = "Idempotency-Key",
) -> Sink:
    """Send rows to a service by HTTP, each at least once in jobs with checkpoints. See docs/how-to/webhooks.md.

    Each request is a POST of several rows: in `format` "json" one JSON array of objects, in "json_lines" one object
    per line. A request has at most `batch_rows` rows and `batch_bytes` bytes. A row waits for others for at most
    `batch_delay` (a duration). `headers` are added to each request. They may have secrets: no error, log or checkpoint
    shows them, nor the path of `url`.

    A subtask sends one request after the other, in the order of its rows. With a higher `concurrency` it has that many
    open requests, and keeps no order. While 8 x `concurrency` requests wait, the job waits, too: back-pressure. With
    `requests_per_s` or `rows_per_s`, the service gets at most so many from all subtasks together; each subtask has an
    equal share. A checkpoint waits until the service has all rows before it. After a failure, the rows after the last
    checkpoint are sent again.

    An answer with a status from 200 to 299 is success. For 429, 502, 503 and 504, for errors of the connection, and if
    the service does not answer for `timeout`, the sink sends the request again for at most `retry_for` (both
    durations). It waits longer each time, and at least as long as the header `Retry-After` says. It follows no
    redirect.

    Each request has an idempotency key in the header `key_header`, so that the service can drop repeats; None: no key.
    The sink repeats a request with the same key. After a restart, a request has the key of an earlier one only if it
    has the same rows, and is again the n-th request of the same subtask after the same checkpoint.

    Raises ConfigError for impossible arguments, and without the package urllib3. When the job starts, raises PlanError
    for columns that JSON cannot hold, and SinkError if nobody listens at the address, or if the certificate is wrong.
    While the job runs, raises SinkError for any other answer, for a service that fails for longer than `retry_for`, and
    for a row that is larger than `batch_bytes`.

    >>> env = hg.StreamEnvironment()
    >>> rows = env.from_source(hg.sources.iterable([{"city": "Rome", "km": 7}]))
    >>> headers = {"Authorization": "Bearer from-your-secret-store"}
    >>> sink = rows.sink_to(hg.sinks.webhook("https://service.example.com/trips", headers=headers))
    """
    http_library()
    if format not in FORMATS:
        raise ConfigError(f"webhook: format={format!r} is not one of 'json', 'json_lines'")
    check(TEXT_OR_NONE, key_header=key_header)
    if key_header is not None and not is_header_name(key_header):
        raise ConfigError(f"webhook: key_header={key_header!r} must be the name of a header, or None")
    check(WHOLE, batch_rows=batch_rows, concurrency=concurrency)
    if batch_rows < 1 or not 1 <= concurrency <= 64:
        raise ConfigError("webhook: batch_rows= must be at least 1, and concurrency= from 1 to 64")
    _check_rates(requests_per_s=requests_per_s, rows_per_s=rows_per_s)
    most, delay, wait, patience = _limits(batch_bytes, batch_delay, timeout, retry_for)
    options = WebhookOptions(
        limits=BatchLimits(int(batch_rows), most, delay),
        form=FORMATS[format],
        retry_for=patience,
        requests_per_s=requests_per_s,
        rows_per_s=rows_per_s,
        concurrency=int(concurrency),
        key_header=key_header,
    )
    return WebhookSink(Endpoint.checked(url, headers, wait, [key_header] if key_header else []), options)


def _check_rates(**rates: float | None) -> None:
    check(NUMBER_OR_NONE, **rates)
    for name, rate in rates.items():
        if rate is not None and not (rate > 0 and isfinite(rate)):
            raise ConfigError(f"webhook: {name}={rate!r} must be above 0")


def _limits(
    batch_bytes: int | str, batch_delay: float | str, timeout: float | str, retry_for: float | str
) -> tuple[int, float, float, float]:
    """Return the arguments as bytes and seconds. Raises ConfigError."""
    try:
        most, delay, wait, patience = size(batch_bytes), seconds(batch_delay), seconds(timeout), seconds(retry_for)
    except ConfigError as error:
        raise ConfigError(f"webhook: {error.message}") from None
    if not 1 << 10 <= most <= 64 << 20:
        raise ConfigError("webhook: batch_bytes= must be from '1 kb' to '64 mb'")
    if delay < 0 or patience < 0 or wait <= 0:
        raise ConfigError("webhook: timeout= must be above 0, and batch_delay= and retry_for= not below 0")
    return most, delay, wait, patience
