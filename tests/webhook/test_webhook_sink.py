"""The webhook sink with a real HTTP server: what it sends, when it repeats, and what it refuses."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.bench.peers.kafka_broker import free_port
from headgate.connectors.webhook.request_queue import RowsRequest
from headgate.connectors.webhook.request_sender import _seconds
from headgate.testing import check_sink
from headgate.testing.sink_program import SinkProgram, StoredJob
from tests.runtime.jobs import counted, endless, environment, error_of, eventually, numbers, pids
from tests.webhook.webhook_service import Answer, Service, running

N = pa.schema({"n": pa.int64()})


def sink(service: Service, path: str = "/rows", **options: Any) -> hg.Sink:
    return hg.sinks.webhook(f"{service.url}{path}", **options)


def write(service: Service, rows: Any, schema: pa.Schema | None = None, **options: Any) -> None:
    env = environment(parallelism=1)
    env.from_source(hg.sources.iterable(rows, schema)).sink_to(sink(service, **options))
    env.execute()


def failure(service: Service, **options: Any) -> str:
    with pytest.raises(hg.SinkError) as caught:
        write(service, [{"n": 1}], **options)
    return caught.value.message


def test_it_keeps_the_contract(service: Service) -> None:
    stuck = Service()
    stuck.is_open.clear()
    try:
        check_sink(
            lambda name: sink(service, f"/{name}", batch_rows=3),
            lambda name: service.rows(f"/{name}"),
            broken=lambda: hg.sinks.webhook(f"http://127.0.0.1:{free_port()}"),
            stalled=lambda: sink(stuck, batch_rows=3),
        )
    finally:
        stuck.close()


@pytest.mark.parametrize("format", ["json", "json_lines"])
def test_requests_have_at_most_so_many_rows_and_bytes(service: Service, format: Any) -> None:
    rows = [{"n": n, "s": 'é"\n' * (n % 7)} for n in range(1000)]
    write(service, [pa.RecordBatch.from_pylist(rows)], format=format, batch_rows=100, batch_bytes="2 kb")
    assert service.rows() == rows, "one subtask sends its rows in order"
    assert all(len(each.body) <= 2048 for each in service.received)
    assert all(len(each.rows) <= 100 for each in service.received)
    assert max(len(each.body) for each in service.received[:-1]) > 1900, "requests are full"
    kind = {"json": "application/json", "json_lines": "application/x-ndjson"}[format]
    assert {each.headers["Content-Type"] for each in service.received} == {kind}
    assert service.connections <= 2, "the connection is kept, besides the one that looks at the start"


def test_a_row_is_sent_after_batch_delay_without_a_checkpoint(service: Service) -> None:
    env = environment(parallelism=1)
    endless(env).filter("n < 3").sink_to(sink(service, batch_delay="10 ms"))
    job = env.execute_async()
    eventually(lambda: len(service.rows()) == 3)
    job.cancel()


def test_the_user_s_headers_are_sent(service: Service) -> None:
    headers = {"Authorization": "Bearer t", "content-type": "application/vnd.rows+json"}
    env = environment(parallelism=1)
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(sink(service, headers=headers, key_header="X-Key"))
    env.execute()
    [sent] = service.received
    assert sent.headers["Authorization"] == "Bearer t"
    assert [value for name, value in sent.headers.items() if name.lower() == "content-type"] == [
        "application/vnd.rows+json"
    ]
    assert sent.headers["X-Key"]
    assert "Idempotency-Key" not in sent.headers


def test_each_subtask_keeps_its_order(service: Service) -> None:
    env = environment(parallelism=3)
    counted(env, rows=3000).set_parallelism(1).rebalance().sink_to(sink(service, batch_rows=50))
    env.execute()
    assert sorted(row["n"] for row in service.rows()) == list(range(3000))
    for subtask in "012":
        own = [row["n"] for each in service.received if each.key.startswith(subtask) for row in each.rows]
        assert own == sorted(own)
        assert own


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_it_tries_again_with_the_same_key(service: Service, status: int) -> None:
    service.answers = [Answer(status), Answer(status)]
    write(service, [{"n": 1}])
    assert service.rows() == [{"n": 1}] * 3
    assert len({each.key for each in service.received}) == 1
    first, second, third = (each.at for each in service.received)
    assert second - first >= 0.12
    assert third - second >= 0.24, "each wait is longer"


def test_it_waits_as_long_as_the_service_asks(service: Service) -> None:
    until = datetime.now(UTC) + timedelta(seconds=3)
    service.answers = [
        Answer(429, {"Retry-After": "1"}),
        Answer(503, {"Retry-After": format_datetime(until, usegmt=True)}),
        Answer(503, {"Retry-After": "soon"}),
    ]
    write(service, [{"n": 1}])
    first, second, _, _ = (each.at for each in service.received)
    assert second - first >= 1
    assert datetime.now(UTC) >= until.replace(microsecond=0)


def test_it_does_not_wait_longer_than_retry_for(service: Service) -> None:
    service.answers = [Answer(429, {"Retry-After": "3600"}, b"slow down")]
    message = failure(service, retry_for="5 s")
    assert "status 429 Too Many Requests: 'slow down'" in message
    assert "asks to wait for 3600 s" in message
    assert len(service.received) == 1


def test_a_wait_for_the_rate_is_no_part_of_retry_for(service: Service) -> None:
    """A request that had waited longer than retry_for was not repeated at all."""
    service.answers = [Answer(200), Answer(503)]
    rows = [{"n": n} for n in range(4)]
    write(service, [pa.RecordBatch.from_pylist(rows)], batch_rows=2, rows_per_s=1.0, retry_for="1 s")
    assert service.rows() == [*rows, *rows[2:]]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Mon, 01 Jan 99999999999999 00:00:00 GMT", 0),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 0),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 0),
        ("-5", 0),
        ("1.5", 0),
        ("", 0),
        (None, 0),
        ("120", 120),
        ("9" * 400, 999_999_999),
    ],
)
def test_any_header_is_a_number_of_seconds(header: str | None, expected: float) -> None:
    assert _seconds(header) == expected


@pytest.mark.parametrize(
    ("status", "advice"),
    [(400, "check format="), (401, "credentials in headers="), (404, "path of url="), (413, "lower batch_rows="),
     (418, "documentation"), (500, "log of the service"), (302, "does not follow"), (999, "log of the service")],
)  # fmt: skip
def test_other_answers_are_errors(service: Service, status: int, advice: str) -> None:
    service.answers = [Answer(status, {"Location": "/other"}, b'{"error":\n "no column m"}')]
    message = failure(service)
    assert f"POST http://127.0.0.1:{service.port}/***: status {status}" in message
    assert '{"error": "no column m"}' in message
    assert advice in message
    assert len(service.received) == 1, "they are not repeated"


def test_a_long_or_endless_answer_is_not_read_whole(service: Service) -> None:
    service.answers = [Answer(400, {}, b"x" * (1 << 20))]
    assert len(failure(service)) < 1000
    service.answers = [Answer(200, {}, b"x" * (1 << 20))]
    write(service, [{"n": n} for n in range(10)], batch_rows=5)
    assert service.rows()[1:] == [{"n": n} for n in range(10)], "the next request has another connection"


def test_a_service_that_does_not_answer_is_a_timeout(service: Service) -> None:
    service.is_open.clear()
    message = failure(service, timeout="100 ms", retry_for="300 ms")
    assert "no answer within timeout= (0.1 s)" in message
    assert "retry_for= (0.3 s)" in message
    eventually(lambda: service.received)  # a slow machine may read the requests late
    assert len({each.key for each in service.received}) == 1


def test_an_answer_that_is_no_http_is_tried_again(service: Service) -> None:
    service.answers = [Answer(raw=b""), Answer(raw=b"SSH-2.0\r\n\r\n")]
    write(service, [{"n": 1}])
    assert len(service.received) == 3


def test_nobody_at_the_address_is_seen_at_the_start() -> None:
    port = free_port()
    env = environment(parallelism=1)
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.webhook(f"http://127.0.0.1:{port}/hush"))
    with pytest.raises(hg.SinkError, match=rf"http://127\.0\.0\.1:{port}/\*\*\*: .*Connection refused; check url="):
        env.execute()


def test_a_service_may_be_away_for_a_time() -> None:
    with running() as first:
        env = environment(parallelism=1)
        endless(env).sink_to(sink(first, batch_rows=10, batch_delay="10 ms"))
        job = env.execute_async()
        first.wait_for(2)
    with running(first.port) as second:
        second.wait_for(2)
        job.cancel()
        seen = {row["n"] for row in [*first.rows(), *second.rows()]}
    assert seen == set(range(len(seen))), "no row is lost"


def test_a_row_larger_than_a_request_is_an_error(service: Service) -> None:
    with pytest.raises(hg.SinkError, match=r"a row is 2009 bytes as JSON, .* batch_bytes= allows \(1024\)"):
        write(service, [{"s": "x" * 2000}], batch_bytes="1 kb")


def test_columns_that_json_cannot_hold_are_refused(service: Service) -> None:
    with pytest.raises(hg.PlanError, match="column 'b' is binary"):
        write(service, [{"b": b"x"}])


def test_a_slow_service_holds_back_the_source(service: Service) -> None:
    service.is_open.clear()
    made: list[int] = []

    def make(start: int, n: int) -> pa.RecordBatch:
        made.append(start)
        return numbers(start, n)

    env = environment(parallelism=1)
    env.from_source(hg.sources.generate(make, rows=1_000_000, batch_rows=10)).sink_to(sink(service, batch_rows=10))
    job = env.execute_async()
    eventually(lambda: sum(task["hard_backpressured_s"] for task in job.metrics()["tasks"].values()) > 0.5)
    read = len(made)
    job.cancel()
    assert read < 20, "one open request, eight that wait, one that has no room, and what the chain holds"


@pytest.mark.parametrize("options", [{"requests_per_s": 20.0}, {"rows_per_s": 100.0}])
def test_the_rate_is_that_of_all_subtasks(service: Service, options: dict[str, Any]) -> None:
    env = environment(parallelism=2)
    numbered = hg.sources.generate(numbers, rows=100, batch_rows=5)
    env.from_source(numbered).rebalance().sink_to(sink(service, batch_rows=5, **options))
    began = time.monotonic()
    env.execute()
    assert sorted(row["n"] for row in service.rows()) == list(range(100))
    assert time.monotonic() - began >= 0.85, "20 requests of 5 rows, 10 of them in each of two subtasks"


def test_more_requests_may_be_open(service: Service) -> None:
    service.is_open.clear()
    env = environment(parallelism=1)
    counted(env, rows=100).sink_to(sink(service, batch_rows=10, concurrency=4))
    job = env.execute_async()
    service.wait_for(4)
    service.is_open.set()
    job.wait(60)
    assert sorted(row["n"] for row in service.rows()) == list(range(100))


def fail_once(flag: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() > 10_000 and not flag.exists():
            flag.touch()
            raise RuntimeError("the failure of the test")
        return batch

    return fail


def test_no_row_is_lost_in_a_job_that_restarts(service: Service, tmp_path: Path) -> None:
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="50 ms", restart=hg.restart.fixed(5, "0 s"))
    rows = counted(env, rows=20_000).map_batches(fail_once(tmp_path / "failed"), schema=N)
    rows.sink_to(sink(service, batch_rows=100))
    job = env.execute_async()
    assert job.guarantee == "at-least-once"
    assert job.wait(60).restarts == 1
    assert {row["n"] for row in service.rows()} == set(range(20_000))


def test_a_receiver_that_drops_known_keys_loses_no_row(service: Service, tmp_path: Path) -> None:
    """Rows that come in the same order make the same requests, so that a receiver finds each repeat."""
    env = environment(
        parallelism=1, checkpoint_dir=tmp_path, checkpoint_interval="1 h", restart=hg.restart.fixed(5, "0 s")
    )
    rows = counted(env, rows=20_000).map_batches(fail_once(tmp_path / "failed"), schema=N)
    rows.sink_to(sink(service, batch_rows=100, batch_delay="1 h"))
    assert env.execute_async().wait(60).restarts == 1
    assert len(service.rows()) > 20_000, "some rows came again"
    first = {each.key: each.rows for each in reversed(service.received)}
    assert [row["n"] for rows in reversed(first.values()) for row in rows].count(0) == 1
    assert sorted(row["n"] for rows in first.values() for row in rows) == list(range(20_000))


def test_the_service_s_failure_goes_by_the_restart_strategy(service: Service, tmp_path: Path) -> None:
    service.answers = [Answer(), Answer(500)]
    env = environment(
        parallelism=1, checkpoint_dir=tmp_path, checkpoint_interval="1 h", restart=hg.restart.fixed(1, "0 s")
    )
    counted(env, rows=200).sink_to(sink(service, batch_rows=100))
    assert env.execute_async().wait(60).restarts == 1
    service.answers = [Answer(500)] * 2
    counted(env, rows=200).sink_to(sink(service, batch_rows=100))
    error = error_of(env.execute_async())
    assert isinstance(error, hg.SinkError)


def test_requests_with_the_same_key_have_the_same_rows() -> None:
    """After a restart the same place may have other rows. A receiver that drops known keys must not drop those."""
    request = RowsRequest(b"[1]", rows=1, checkpoint=3, number=7)
    key = request.key("run", "sink", 2)
    assert key == replace(request).key("run", "sink", 2)
    others = [replace(request, body=b"[2]"), replace(request, checkpoint=4), replace(request, number=8)]
    keys = [key, *(other.key("run", "sink", 2) for other in others)]
    keys += [request.key("other", "sink", 2), request.key("run", "sink#2", 2), request.key("run", "sink", 3)]
    assert len(set(keys)) == len(keys)


def test_a_killed_process_loses_no_row(service: Service, tmp_path: Path) -> None:
    env = environment(
        processes=True, checkpoint_dir=tmp_path, checkpoint_interval="50 ms", restart=hg.restart.fixed(5, "0 s")
    )
    endless(env, rate=2000).filter("n < 4000").sink_to(sink(service, batch_rows=20, batch_delay="20 ms"))
    job = env.execute_async()
    service.wait_for(20)
    killed = pids()[1]
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: pids().get(1, killed) != killed, 60)  # another process continues
    eventually(lambda: {row["n"] for row in service.rows()} == set(range(4000)), 60)
    job.cancel()


def test_a_resumed_job_has_the_keys_of_its_first_run(service: Service) -> None:
    first, resumed, other = (sink(service) for _ in range(3))
    first.prepare("first-run", N)
    resumed.resume("second-run", N, first.prepared())
    assert resumed.prepared() == {"run": "first-run"}
    other.prepare("second-run", N)
    for each in (first, resumed, other):
        program = SinkProgram(each, StoredJob(), pa.table({"n": range(9)}), home="", subtasks=1)
        program.roll_back()  # opens the writers
        program.write()
        program.flush()
        program.close()
    assert [each.rows for each in service.received] == [[{"n": 0}, {"n": 3}, {"n": 6}]] * 3
    keys = [each.key for each in service.received]
    assert keys[0] == keys[1] != keys[2]
    assert [key.split("-")[:3] for key in keys] == [["0", "1", "0"]] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://host/rows"}, "must be an address such as"),
        ({"url": "https://"}, "must be an address such as"),
        ({"url": "https://host:port/rows"}, "must be an address such as"),
        ({"url": "https://a b/"}, "must be an address such as"),
        ({"url": 7}, "must be an address such as"),
        ({"url": "https://user:hush-hush@host/"}, "as the header Authorization"),
        ({"format": "xml"}, "'json', 'json_lines'"),
        ({"headers": ["x"]}, "must be a dict"),
        ({"headers": {"a b": "x"}}, "a name that is not"),
        ({"headers": {"X": "hush-hush\r\nY: 1"}}, "'X' must be ASCII text"),
        ({"headers": {"X": "hush-hush\u00e9"}}, "'X' must be ASCII text"),
        ({"headers": {"content-length": "1"}}, "the sink sets itself"),
        ({"headers": {"idempotency-key": "1"}}, "the sink sets itself"),
        ({"key_header": "Host"}, "key_header='Host'"),
        ({"batch_rows": 0}, "batch_rows="),
        ({"concurrency": 65}, "concurrency="),
        ({"batch_bytes": "1 b"}, "batch_bytes="),
        ({"batch_delay": "long"}, "webhook: 'long' is not a duration"),
        ({"timeout": 0}, "timeout="),
        ({"retry_for": -1}, "retry_for="),
        ({"requests_per_s": 0}, "requests_per_s=0"),
        ({"rows_per_s": float("nan")}, "rows_per_s=nan"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hg.ConfigError, match=message) as caught:
        hg.sinks.webhook(**{"url": "https://host/rows", **options})
    assert "hush" not in str(caught.value)
