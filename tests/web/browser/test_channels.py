"""The channels on the page, and the texts of the graph."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

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


@pytest.mark.parametrize("width", [380, 1400])
def test_no_text_of_the_graph_covers_another(serve: Serve, show: Open, width: int) -> None:
    yesterday = (time.time() - 86_400) * 1e6
    busy = {**WAITS, "rows": 3080, "watermark": yesterday}
    tasks = {**both(0, busy), **both(1, busy), **both(2, busy)}
    job = job_with(tasks, "numbers", "w" * 60, "out", begin=time.time())
    page = show(serve(job), job, width=width)
    expect(page.locator(".vertex").first).to_contain_text(" 2, 6.16 k rows/s")
    expect(page.locator(".vertex").first).to_contain_text("watermark 20")
    assert page.evaluate(OVERLAPS) == []
