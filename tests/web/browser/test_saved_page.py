"""The saved page in a browser: from a file, without a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from headgate.observe.recording import read_recording
from headgate.web.recorded_job import RecordedJob
from headgate.web.saved_page import save_page
from tests.web.browser.conftest import Open
from tests.web.conftest import Serve
from tests.web.fake_job import checkpoint, job_with_channels, profile_of

pytestmark = pytest.mark.xdist_group("browser")

OpenFile = Callable[..., Page]


@pytest.fixture
def open_file(browser: Browser) -> Iterator[OpenFile]:
    """Return a function that opens a file. At the end it may have had no error, and have asked for nothing."""
    troubles: list[str] = []
    contexts = []

    def opened(path: Path, *, width: int = 1400, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.turns(2)
@pytest.mark.parametrize(("width", "dark"), [(380, True), (1400, False)])
def test_a_saved_page_shows_what_the_page_showed(open_file: OpenFile, tmp_path: Path, width: int, dark: bool) -> None:
    job = job_with_channels(80, begin=time.time() - 12, ended_checkpoints=[checkpoint(1, failure="the disk is full")])
    job.last = profile_of("warehouse", 1)
    job.end(time.time(), "FAILED", "UserFunctionError: no price")
    save_page(job, tmp_path / "page.html")
    page = open_file(tmp_path / "page.html", width=width, dark=dark)
    expect(page.locator("h1")).to_have_text("orders")
    expect(page.locator(".headline").first).to_contain_text("The job is FAILED: UserFunctionError: no price")
    expect(page.locator("#verdict dl")).to_contain_text("its function takes")
    expect(page.locator(".vertex.cause")).to_have_count(1)
    expect(page.locator("figure canvas")).to_have_count(6)
    expect(page.locator("figure .spoken").first).to_contain_text(
        "Now: busy 100 %, back-pressured 0 %, within a batch 0 %, throttled 0 %, idle 0 %, CPU 1 %"
    )
    page.locator("#history-task").select_option("0/1")
    expect(page.locator("figure .spoken").first).to_contain_text("back-pressured 90 %")
    expect(page.locator("figure .spoken").nth(1)).to_contain_text("in 100, out 100, late 0")
    expect(page.locator("figure .spoken").nth(2)).to_contain_text("floating 40 %, exclusive 10 %")
    expect(page.locator("figure .spoken").last).to_contain_text("numbers -> warehouse 1.6 kB/s")
    expect(page.locator("#channels tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Next 50").click()
    expect(page.locator("#channels tbody tr")).to_have_count(30)
    expect(page.locator("#checkpoints")).to_contain_text("failed: the disk is full")
    expect(page.locator("#profile-status")).to_contain_text("“warehouse[1]” worked in 91 %")
    expect(page.get_by_role("treeitem", name="SocketIO.readinto (socket.py:706)")).to_be_visible()
    expect(page.locator("#profile-start")).to_be_hidden()
    expect(page.locator("#notice")).to_contain_text("This page was saved on 20")
    assert page.locator("a:visible, button:visible").filter(has_text="Save").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert Axe().run(page).violations_count == 0


def test_the_page_of_a_recording_opens(open_file: OpenFile, tmp_path: Path) -> None:
    job = job_with_channels(3)
    job.save_recording(tmp_path / "recording")
    save_page(RecordedJob(read_recording(tmp_path / "recording")), tmp_path / "page.html")
    page = open_file(tmp_path / "page.html")
    expect(page.locator("#job-state")).to_contain_text("RECORDED")
    expect(page.locator("#channels tbody tr")).to_have_count(3)
    expect(page.locator("figure .spoken").first).to_contain_text("busy 100 %")
    expect(page.locator("#profile-status")).to_have_text("A recording has no profile.")


def test_a_saved_page_without_a_profile_promises_none(open_file: OpenFile, tmp_path: Path) -> None:
    save_page(job_with_channels(3), tmp_path / "page.html")
    expect(open_file(tmp_path / "page.html").locator("#profile-status")).to_have_text("No function was profiled.")


def test_the_page_of_a_driver_saves_itself(serve: Serve, show: Open, open_file: OpenFile, tmp_path: Path) -> None:
    job = job_with_channels(3)
    page = show(serve(job), job)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save this page").click()
    assert download.value.suggested_filename == f"headgate-{job.id}.html"
    download.value.save_as(tmp_path / "page.html")
    expect(open_file(tmp_path / "page.html").locator("h1")).to_have_text("orders")
