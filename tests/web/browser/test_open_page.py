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
#: The growth that does not count, in bytes and in elements of the page.
_NO_GROWTH, _NO_ELEMENTS = 256 << 10, 50


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH)
    yield
    pages.close()


@pytest.mark.soak
@pytest.mark.timeout(75 * MINUTES + 300)
def test_an_open_page_does_not_grow(browser: Browser) -> None:
    """The least of the last quarter is no more than the least of the second, in which the charts are full.

    What the page holds for a moment only, such as an answer that it reads, is in some of the sizes, and in no least.
    """
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
    filled, last = sizes[MINUTES // 4 : MINUTES // 2], sizes[-(MINUTES // 4) :]
    for values, more in ((0, _NO_GROWTH), (1, _NO_ELEMENTS)):
        assert min(each[values] for each in last) <= min(each[values] for each in filled) + more, sizes


def used(client: CDPSession) -> tuple[int, int]:
    """Return the bytes of the page's heap after a collection, and the number of its elements."""
    client.send("HeapProfiler.collectGarbage")
    return int(client.send("Runtime.getHeapUsage")["usedSize"]), int(client.send("Memory.getDOMCounters")["nodes"])
