"""A real Chromium, which opens the page. Without one, these tests are skipped and say so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, ViewportSize, expect, sync_playwright

from tests.web.conftest import Served
from tests.web.fake_job import FakeJob

Open = Callable[..., Page]

# Without this, what a test expects has to show within 5 s, and on a slow machine a page may take longer to draw.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    path = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium here; Debian's package is `chromium`")
    # Without --disable-gpu, it draws in software what a graphics card would draw: a quarter more processor time.
    started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
    yield started
    started.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Return a function that opens a job's page: `show(served, job)`, with `width`, `height` and `dark`.

    A request may be answered with the status `refused`.

    At the end no page may have had an error or have asked another server.
    """
    troubles: list[str] = []
    contexts = []

    def opened(
        served: Served,
        job: FakeJob | None,
        *,
        width: int = 1400,
        height: int = 900,
        dark: bool = False,
        refused: int = 0,
    ) -> Page:
        size: ViewportSize = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if is_trouble(message, refused) else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: troubles.append(request.url) if is_elsewhere(served, request.url) else None)
        page.goto(f"{served.server.address}/#{'' if job is None else job.id}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def is_trouble(message: ConsoleMessage, refused: int) -> bool:
    return message.type == "error" and not (refused and f"status of {refused}" in message.text)


def is_elsewhere(served: Served, url: str) -> bool:
    return not url.startswith(f"{served.server.address}/")
