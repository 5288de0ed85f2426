"""The page of a real job that becomes slow while it is watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import headgate as hg
from headgate.web.job_pages import SWITCH, pages
from tests.runtime.jobs import NUMBERS, endless, environment

pytestmark = pytest.mark.xdist_group("browser")

#: Milliseconds that the page has to show what the job does now. A function is profiled once a minute at most, and the
#: first profile may be of another one.
IN_TIME = 90_000
_is_stalled = threading.Event()


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH)
    _is_stalled.clear()
    yield
    pages.close()


def priced(batch: pa.RecordBatch) -> pa.RecordBatch:
    if _is_stalled.is_set():
        time.sleep(batch.num_rows * 0.002)  # half of what comes
    return batch


def test_a_stall_turns_the_slow_operator_into_the_cause(browser: Browser) -> None:
    env = environment(taskmanagers=1, segment_size=1024, message_size=1024)  # so that queues fill soon
    endless(env, rate=2000.0).rebalance().map_batches(priced, schema=NUMBERS).name("prices").sink_to(hg.sinks.null())
    job = env.execute_async("orders")
    errors: list[str] = []
    page = browser.new_page()
    try:
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(str(job.web_url))
        expect(page.locator(".headline")).to_contain_text("The job has no bottleneck", timeout=IN_TIME)
        assert page.locator(".vertex.cause").count() == 0
        _is_stalled.set()
        expect(page.locator(".vertex.cause .operator.cause")).to_contain_text("prices", timeout=IN_TIME)
        expect(page.locator("#verdict dl")).to_contain_text("its function takes", timeout=IN_TIME)
        expect(page.locator("#profile-status")).to_contain_text("“prices[", timeout=IN_TIME)
        expect(page.locator("#verdict .lines")).to_contain_text("priced (test_real_job.py:", timeout=IN_TIME)
        expect(page.get_by_role("treeitem", name="priced (test_real_job.py:")).to_be_visible()
        page.locator("#profile-operator").select_option(index=0)
        source = page.locator("#profile-operator").input_value()
        page.get_by_role("button", name="Profile for 2 seconds").click()
        expect(page.locator("#profile-status")).to_contain_text(f"“{source}[", timeout=IN_TIME)
        job.cancel()
        expect(page.locator(".headline").first).to_contain_text("The job is CANCELLED", timeout=IN_TIME)
    finally:
        job.cancel()
        page.close()
    assert errors == []
