"""A page that stays open does not grow in an hour. MINUTES=5 in the environment makes the hour shorter."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, CDPSession

import headgate as hg
from headgate.web.job_pages import SWITCH, pages
from tests.runtime.jobs import endless, environment

pytestmark = pytest.mark.xdist_group("browser")

MINUTES = int(os.environ.get("MINUTES", "60"))
#: The first part of the time, in which the page fills its charts.
_FILLS = 0.25
#: The growth after that part that does not count, in bytes and in elements of the page.
_NO_GROWTH, _NO_ELEMENTS = 1 << 20, 200


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH)
    yield
    pages.close()


@pytest.mark.soak
@pytest.mark.timeout(60 * MINUTES + 300)
def test_an_open_page_does_not_grow(browser: Browser) -> None:
    env = environment(taskmanagers=2)
    endless(env, rate=200.0).rebalance().sink_to(hg.sinks.null())
    job = env.execute_async("open")
    page = browser.new_page()
    sizes: list[tuple[int, int]] = []
    try:
        page.goto(str(job.web_url))
        client = page.context.new_cdp_session(page)
        for _ in range(MINUTES):
            page.wait_for_timeout(60_000)
            sizes.append(used(client))
            print(sizes[-1], flush=True)
    finally:
        job.cancel()
        page.close()
    filled = sizes[: max(1, int(_FILLS * MINUTES))]
    assert max(size for size, _ in sizes) <= max(size for size, _ in filled) + _NO_GROWTH, sizes
    assert max(count for _, count in sizes) <= max(count for _, count in filled) + _NO_ELEMENTS, sizes


def used(client: CDPSession) -> tuple[int, int]:
    """Return the bytes of the page's heap after a collection, and the number of its elements."""
    client.send("HeapProfiler.collectGarbage")
    return int(client.send("Runtime.getHeapUsage")["usedSize"]), int(client.send("Memory.getDOMCounters")["nodes"])
