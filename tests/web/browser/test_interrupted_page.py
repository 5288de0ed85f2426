"""The page when something is in its way: a reader who uses it, a driver that is silent, or a job that is not there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.browser.conftest import Open
from tests.web.browser.test_page import healthy, skewed
from tests.web.conftest import Serve
from tests.web.fake_job import slow_job

pytestmark = pytest.mark.xdist_group("browser")

LOST = "The driver does not answer. What you see is from before."
#: Milliseconds in which the page notices that no event comes, and opens the stream again.
SILENCE = 20_000


def select(page: Page, place: str) -> None:
    """Select a text of the page, as a reader does who is about to copy it."""
    page.locator(place).first.select_text()
    assert not page.evaluate("getSelection().isCollapsed")


def test_the_verdict_that_the_reader_copied_from_is_not_left_behind(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    expect(page.locator("#verdict dl")).to_be_visible()
    select(page, "#verdict dd")
    with page.expect_response(lambda reply: "/series?" in reply.url):
        job.go_on(healthy(begin=time.time() - 11))
    page.wait_for_timeout(1500)
    expect(page.locator("#verdict dl")).to_be_visible()
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator(".headline")).to_contain_text("The job has no bottleneck")


def test_the_end_of_a_job_is_shown_after_the_reader_has_copied_from_the_verdict(serve: Serve, show: Open) -> None:
    """No event follows the end: the page itself makes up for the change that it left out."""
    job = skewed()
    page = show(serve(job), job)
    expect(page.locator("#verdict dl")).to_be_visible()
    select(page, "#verdict dd")
    job.end(time.time(), "FAILED", "UserFunctionError: no price")
    expect(page.locator("#job-state")).to_contain_text("FAILED")
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator(".headline").first).to_contain_text("The job is FAILED: UserFunctionError: no price")


def test_the_charts_of_another_subtask_are_drawn_once_the_reader_lets_go(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    expect(page.locator("figure canvas")).to_have_count(6)
    select(page, "figcaption")
    with page.expect_response(lambda reply: "/series?" in reply.url):
        page.locator("#history-task").select_option("0/0")
    page.wait_for_timeout(500)
    expect(page.locator("figure canvas")).to_have_count(6)
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator("figure .spoken").first).to_contain_text("back-pressured 90 %")
    expect(page.locator("figure canvas")).to_have_count(7)


def test_a_job_that_the_driver_does_not_know_leads_to_the_list_of_jobs(serve: Serve, show: Open) -> None:
    unknown = healthy(id="2f1c-9a41d0c3")
    page = show(serve(healthy()), unknown, refused=404)
    expect(page.locator("#notice")).to_contain_text(f"The driver does not know the job {unknown.id}")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.wait_for_timeout(4000)  # the list is read again
    expect(page.locator("#notice")).to_contain_text("The driver does not know the job")
    page.get_by_role("link", name="orders").click()
    expect(page.locator(".headline")).to_be_visible()
    expect(page.locator("#notice")).to_be_hidden()


def test_an_address_that_names_no_job_leads_to_the_list_of_jobs(serve: Serve, show: Open) -> None:
    page = show(serve(healthy(), slow_job(id="2f-1")), replace(healthy(), id="%"))
    expect(page.locator("tbody tr")).to_have_count(2)


def held(page: Page, pattern: str) -> Callable[[], None]:
    """Let no request that fits the pattern get an answer. Return a function that ends this for later requests."""

    def hold(_: Route) -> None: ...

    page.route(pattern, hold)
    return lambda: page.unroute(pattern, hold)


def test_a_driver_that_is_silent_is_said_and_asked_again(serve: Serve, show: Open) -> None:
    job = healthy()
    page = show(serve(job), None)
    expect(page.locator(".headline")).to_be_visible()
    let_go = held(page, "**/events")
    page.reload()
    expect(page.locator("#notice")).to_have_text(LOST, timeout=SILENCE)
    let_go()
    expect(page.locator(".headline")).to_be_visible(timeout=SILENCE)
    expect(page.locator("#notice")).to_be_hidden()


def test_nothing_happens_before_the_first_event(serve: Serve, show: Open) -> None:
    job = healthy()
    page = show(serve(job), None)
    expect(page.locator(".headline")).to_be_visible()
    held(page, "**/events")
    page.reload()
    page.locator("#count-from-here").click()
    page.locator("#history-range").select_option("900")
    expect(page.locator("#count-all")).to_be_hidden()


def test_a_history_that_cannot_be_read_says_so_and_shows_no_other(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job, refused=503)
    expect(page.locator("figure canvas")).to_have_count(6)

    def refuse(route: Route) -> None:
        route.fulfill(status=503, json={"errors": ["the driver is busy"]})

    page.route("**/series?*", refuse)
    page.locator("#history-task").select_option("0/0")
    expect(page.locator("#history-problem")).to_have_text("The history cannot be shown: the driver is busy.")
    expect(page.locator("figure")).to_have_count(0)
    page.unroute("**/series?*", refuse)
    expect(page.locator("figure canvas")).to_have_count(7)
    expect(page.locator("#history-problem")).to_have_text("")
