"""The server of a process, and the pages of real jobs."""

from __future__ import annotations

import gc
import json
import logging
import socket
import subprocess
import sys
import time
import urllib.request
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.config import Config
from headgate.errors import ConfigError
from headgate.web.job_pages import SWITCH, JobPages, pages
from tests.runtime.jobs import endless, environment, eventually, wait_until_running
from tests.web.conftest import TOKEN
from tests.web.fake_job import slow_job


@pytest.fixture
def some_pages() -> Iterator[JobPages]:
    made = JobPages()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH)
    yield
    pages.close()


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def test_all_jobs_of_a_program_share_a_server(some_pages: JobPages) -> None:
    first, second = (some_pages.add(slow_job(id=f"job-{number}"), Config()) for number in (1, 2))
    assert first.replace("job-1", "job-2") == second
    some_pages.serve()
    assert len(read(f"{first.partition('#')[0]}jobs")["jobs"]) == 2


def test_a_report_is_beside_the_jobs_and_a_later_one_replaces_it(
    some_pages: JobPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = some_pages.show_report("<p>first")
    assert address is not None
    assert (some_pages.add(slow_job(), Config()) or "").startswith(address.removesuffix("report"))
    some_pages.serve()
    assert some_pages.show_report("<p>second") == address
    with urllib.request.urlopen(address, timeout=30) as reply:
        assert reply.read() == b"<p>second"
    monkeypatch.setenv(SWITCH, "off")
    assert some_pages.show_report("<p>third") is None


def test_a_job_without_a_port_has_no_page(some_pages: JobPages, monkeypatch: pytest.MonkeyPatch) -> None:
    assert some_pages.add(slow_job(), Config(web_port=None)) is None
    monkeypatch.setenv(SWITCH, "off")
    assert some_pages.add(slow_job(), Config()) is None
    some_pages.serve()
    assert some_pages.board.jobs() == []


def test_a_port_in_use_is_a_warning(some_pages: JobPages, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert some_pages.add(slow_job(), Config(web_port=port)) is None
    assert f"port {port}: Address already in use; choose another web_port, or 0" in caplog.text
    assert some_pages.add(slow_job(), Config()) is not None, "a later job with another port"


def test_a_job_with_a_token_is_not_shown_without_it(some_pages: JobPages, caplog: pytest.LogCaptureFixture) -> None:
    some_pages.add(slow_job(id="open"), Config())
    assert some_pages.add(slow_job(id="closed"), Config(web_token=TOKEN)) is None
    assert [job.id for job in some_pages.board.jobs()] == ["open"]
    assert "has another web_token" in caplog.text
    assert TOKEN not in caplog.text


def test_another_port_of_a_later_job_has_no_effect(some_pages: JobPages, caplog: pytest.LogCaptureFixture) -> None:
    first = some_pages.add(slow_job(id="job"), Config())
    with caplog.at_level(logging.WARNING):
        assert some_pages.add(slow_job(id="job"), Config(web_port=1)) == first
    assert "where this program's page is already" in caplog.text


def test_another_address_than_loopback_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="web_host='0.0.0.0' needs web_token"):
        Config(web_host="0.0.0.0")
    assert Config(web_host="localhost").web_host == "localhost"
    with pytest.raises(ConfigError, match="web_host has no effect with web_port=None"):
        Config(web_port=None, web_host="localhost")


def test_a_token_is_never_shown() -> None:
    config = Config(web_host="0.0.0.0", web_token=TOKEN)
    assert config.shown()["web_token"] == "***"
    assert TOKEN not in repr(config)
    assert config.without_web() == Config(web_port=None)
    with pytest.raises(ConfigError) as error:
        Config(web_token="a b")
    assert "a b" not in str(error.value)


def watched_to_its_end() -> tuple[str, weakref.ref[object]]:
    """Read the page of a running job and cancel the job. Return the job's address and a reference to its master."""
    env = environment()
    endless(env, rate=1000.0).sink_to(hg.sinks.null())
    job = env.execute_async("orders")
    wait_until_running(job)
    assert job.web_url is not None
    url, _, job_id = job.web_url.partition("#")
    base = f"{url}jobs/{job_id}"
    overview = eventually(lambda: (answer := read(base))["vertices"][0]["rows_in"] and answer)
    assert (overview["name"], overview["state"]) == ("orders", "RUNNING")
    eventually(lambda: read(f"{base}/diagnosis")["severity"] != "pending")
    assert read(f"{base}/vertices/0/backpressure")["subtasks"]
    with urllib.request.urlopen(f"{url}metrics", timeout=30) as reply:
        assert b'headgate_operator_rows_in_total{attempt="0"' in reply.read()
    job.cancel()
    return base, weakref.ref(job._master)


def test_a_running_job_has_a_page_and_an_ended_one_keeps_it_alone() -> None:
    base, master = watched_to_its_end()
    gc.collect()
    assert master() is None, "the page keeps nothing of what the job needed"
    ended = read(base)
    assert (ended["state"], ended["ended_at"] > ended["started_at"]) == ("CANCELLED", True)
    assert read(f"{base}/series?contains=busy_s")["total"] > 0
    assert read(f"{base}/diagnosis")["severity"] == "ended"
    assert read(base)["vertices"][0]["rows_in"] > 0
    (job,) = pages.board.jobs()
    assert len(job.snapshots()) == 2, "those of the last window"
    assert 0 < job.nbytes < 1 << 20


def test_the_page_of_a_finished_job_has_its_last_rows() -> None:
    env = environment()
    env.from_source(hg.sources.generate(a_batch, rows=30_000, batch_rows=1000)).rebalance().sink_to(hg.sinks.null())
    job = env.execute_async("counts")
    result = job.wait(60)
    url = str(job.web_url).partition("#")[0]
    pages.serve()
    (about,) = eventually(lambda: read(f"{url}jobs"))["jobs"]
    vertices = read(f"{url}jobs/{about['id']}")["vertices"]
    assert [(each["rows_in"], each["rows_out"]) for each in vertices] == [(result.rows_in, result.rows_out)] * 2
    with urllib.request.urlopen(f"{url}metrics", timeout=30) as reply:
        lines = [each.split() for each in reply.read().decode().splitlines() if "operator_rows_in_total{" in each]
    assert sum(float(each[-1]) for each in lines) == 2 * result.rows_in


def a_batch(start: int, rows: int) -> pa.RecordBatch:
    time.sleep(0.02)
    return pa.record_batch({"n": pa.array(range(start, start + rows), pa.int64())})


PROGRAM = """
import sys
import urllib.request
import headgate as hg
def loaded():
    return sorted({"starlette", "uvicorn", "prometheus_client", "asyncio"} & set(sys.modules))
env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.null())
job = env.execute_async()
assert job.web_url
job.wait()
print(loaded())
urllib.request.urlopen(job.web_url).read()
print(loaded())
"""


def test_the_server_is_loaded_when_somebody_looks() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    before, after = ran.stdout.splitlines()
    assert (before, after, ran.stderr) == ("[]", "['asyncio', 'prometheus_client', 'starlette', 'uvicorn']", "")
