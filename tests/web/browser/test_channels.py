"""The channels on the page, and the texts of the graph."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from headgate.errors import TraceError
from headgate.observe.channel_trace import ChannelTrace
from tests.web.browser.conftest import Open
from tests.web.conftest import Serve
from tests.web.fake_job import WAITS, both, job_with, job_with_channels

pytestmark = pytest.mark.xdist_group("browser")

#: Runs in the page: the pairs of texts of one vertex that overlap.
OVERLAPS = """() => [...document.querySelectorAll(".vertex")].flatMap((vertex) => {
    const texts = [...vertex.querySelectorAll("text")].map((node) => [node.textContent, node.getBoundingClientRect()]);
    return texts.flatMap(([one, a], at) => texts.slice(at + 1).filter(([, b]) =>
        Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        .map(([other]) => `${one} / ${other}`));
})"""


def test_channels_are_shown_with_their_credit_fifty_at_once(serve: Serve, show: Open) -> None:
    job = job_with_channels(80)
    page = show(serve(job), job)
    rows = page.locator("#channels tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("numbers[0] → warehouse[79]")
    expect(rows.first).to_contain_text("99 %, 10.9 s49 %, 5.43 s")
    expect(page.locator("#channels-place")).to_have_text("1 to 50 of 80, those that wait most first")
    expect(page.get_by_role("button", name="Previous 50")).to_be_disabled()
    page.get_by_role("button", name="Next 50").click()
    expect(rows).to_have_count(30)
    expect(rows.first).to_contain_text("warehouse[29]")
    expect(rows.last).to_contain_text("warehouse[1] → out[0]-----")
    expect(page.get_by_role("button", name="Next 50")).to_be_disabled()


@pytest.mark.turns(2)
@pytest.mark.parametrize(("width", "dark"), [(380, False), (1400, True)])
def test_a_trace_is_drawn_as_a_sequence(serve: Serve, show: Open, width: int, dark: bool) -> None:
    job = job_with_channels(3, rounds=20)
    page = show(serve(job), job, width=width, dark=dark)
    page.get_by_role("button", name="Trace numbers[0] → warehouse[2]").click()
    expect(page.locator("#trace-title")).to_have_text("Trace of numbers[0] → warehouse[2]")
    expect(page.locator("#trace")).to_contain_text("1 to 40 of 100 events")
    expect(page.locator(".event")).to_have_count(40)
    expect(page.locator(".event.data").first).to_contain_text("0.0000 s1 of data, backlog 5")
    expect(page.locator(".event.credit").nth(0)).to_contain_text("0.0500 sAddCredit 1")
    expect(page.locator(".event.read").first).to_contain_text("reads 1, 0 left")
    way = page.locator(".event.data path").first.bounding_box()
    assert way is not None
    assert way["height"] > 10, "an arrow ends where the data arrive"
    page.get_by_role("button", name="Later").click()
    expect(page.locator("#trace")).to_contain_text("41 to 80 of 100 events")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert Axe().run(page).violations_count == 0


def test_what_cannot_be_traced_is_said(serve: Serve, show: Open) -> None:
    job = job_with_channels(3)
    page = show(serve(job), job, refused=409)
    job.trace_channel = _refuse  # type: ignore[assignment, method-assign]
    page.get_by_role("button", name="Trace numbers[0] → warehouse[2]").click()
    expect(page.locator("#trace")).to_contain_text("it is being traced already")


def _refuse(*_: object) -> Future[ChannelTrace]:
    raise TraceError("it is being traced already")


@pytest.mark.turns(2)
@pytest.mark.parametrize("width", [380, 1400])
def test_no_text_of_the_graph_covers_another(serve: Serve, show: Open, width: int) -> None:
    yesterday = (time.time() - 86_400) * 1e6
    busy = {**WAITS, "rows": 3080, "watermark": yesterday}
    tasks = {**both(0, busy), **both(1, busy), **both(2, busy)}
    job = job_with(tasks, "numbers", "w" * 60, "out", begin=time.time())
    page = show(serve(job), job, width=width)
    expect(page.locator(".vertex").first).to_contain_text("2 subtasks, 6.16 k rows/s")
    expect(page.locator(".vertex").first).to_contain_text("watermark 20")
    assert page.evaluate(OVERLAPS) == []
