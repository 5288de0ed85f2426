"""The page in a browser: what it says, how it looks, and that the keyboard and a screen reader suffice."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from headgate.errors import ProfileError
from headgate.observe.profile import Frame, HotLine
from tests.observe.made_metrics import line, snapshots
from tests.web.browser.conftest import Open
from tests.web.conftest import Serve
from tests.web.fake_job import (
    IDLES,
    SLEEPS,
    WAITS,
    FakeJob,
    _complete,
    both,
    checkpoint,
    job_with,
    job_with_watermarks,
    profile_of,
    slow_job,
)

pytestmark = pytest.mark.xdist_group("browser")

SIZES = [(380, 700), (1400, 900)]
#: Runs in the page: the text that is visible on the first screen.
FIRST_SCREEN = """() => [...document.querySelectorAll("#verdict dd, #verdict .headline")]
    .filter((node) => node.getBoundingClientRect().bottom <= innerHeight).map((node) => node.innerText).join("\\n")"""


def healthy(**fields: Any) -> FakeJob:
    works = {"idle_s": 0.6, "busy_s": 0.4, "rows": 100}
    return job_with({**both(0, works), **both(1, works), **both(2, IDLES)}, **fields)


def skewed() -> FakeJob:
    """Return a job with one slow subtask, checkpoints and lag."""
    works = {"busy_s": 0.3, "idle_s": 0.7, "cpu_s": 0.2, "rows": 100, "batches": 10}
    tasks = {**both(0, {**WAITS, "lag_s": 0.5}), (1, 0): works, (1, 1): SLEEPS, **both(2, IDLES)}
    records = [checkpoint(1), checkpoint(2, failure="the disk is full")]
    return job_with(tasks, ended_checkpoints=records, begin=time.time() - 12)


def colours(page: Page) -> list[str]:
    """The colours of three vertices, read at once: the page may draw them anew at any moment."""
    box = '[data-key="vertex-${vertex}"] .box'
    colour = f"(vertex) => getComputedStyle(document.querySelector(`{box}`)).stroke"
    found: list[str] = page.evaluate(f"[0, 1, 2].map({colour})")
    return found


def test_the_report_of_the_program_is_a_link_away_and_has_its_styles(serve: Serve, show: Open) -> None:
    job = healthy()
    served = serve(job)
    page = show(served, job)
    expect(page.locator(".headline")).to_be_visible()
    expect(page.locator("#report")).to_be_hidden()
    served.board.report = (
        b"<!doctype html><title>Lab</title><style>p { color: rgb(1, 2, 3) }</style>"
        b"<p>fast<svg><style>*{stroke-width:3}</style><path style='fill: none'/></svg>"
    )
    page.reload()
    page.locator("#report").click()
    expect(page.locator("p")).to_have_css("color", "rgb(1, 2, 3)")
    expect(page.locator("path")).to_have_css("fill", "none")


def test_only_the_cause_has_a_colour_and_colours_follow_a_stall(serve: Serve, show: Open) -> None:
    job = healthy()
    page = show(serve(job), job)
    expect(page.locator(".headline")).to_contain_text("The job has no bottleneck")
    calm = colours(page)
    assert len(set(calm)) == 1
    job.go_on(slow_job())
    expect(page.locator(".vertex.cause")).to_have_count(1)
    assert [each == calm[0] for each in colours(page)] == [True, False, True]
    expect(page.locator(".headline")).to_contain_text("“numbers” waits for “warehouse”")


def test_each_node_has_its_watermark_or_says_that_it_has_none_or_is_idle(serve: Serve, show: Open) -> None:
    job = job_with_watermarks()
    page = show(serve(job), job)
    for vertex, watermark in enumerate(("none", "idle", "ended", "2023-11-14 22:13:25", "2023-11-14 22:13:25")):
        node = page.locator(f'[data-key="vertex-{vertex}"]')
        expect(node.locator("text").last).to_have_text(f"watermark {watermark}")
        expect(node).to_have_attribute("aria-label", re.compile(f"; watermark {watermark}(;|$)"))


@pytest.mark.turns(2)
@pytest.mark.parametrize("dark", [False, True])
def test_the_first_screen_of_a_phone_has_the_whole_verdict(serve: Serve, show: Open, dark: bool) -> None:
    job = skewed()
    page = show(serve(job), job, width=380, height=700, dark=dark)
    expect(page.locator("#verdict dl")).to_be_visible()
    seen = page.evaluate(FIRST_SCREEN)
    finding = serve(job).get(f"/jobs/{job.id}/diagnosis").json["findings"][0]
    for text in (
        finding["operator"],
        "[1]: 1 of its 2 subtasks",
        finding["why"],
        finding["remedy"],
        "times as many rows",
    ):
        assert text in seen


@pytest.mark.turns(2)
@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_can_be_read_by_all(serve: Serve, show: Open, width: int, height: int, dark: bool) -> None:
    job = skewed()
    page = show(serve(job), job, width=width, height=height, dark=dark)
    expect(page.locator("figure canvas")).to_have_count(6)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.locator("figure .spoken").first).to_contain_text("busy 100 %")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_the_hottest_lines_of_a_profiled_function_are_shown(serve: Serve, show: Open) -> None:
    job = skewed()
    hottest = (HotLine(Frame("/home/me/prices.py", 12, "price", "user"), 0.7, 0.01),)
    findings = [replace(finding, hottest=hottest) for finding in job.diagnose()]
    job.diagnose = lambda: findings  # type: ignore[method-assign]
    page = show(serve(job), job)
    expect(page.locator("#verdict dl")).to_contain_text("70 % price (prices.py:12), 1 % on the processor")


@pytest.mark.turns(2)
@pytest.mark.parametrize(("width", "dark"), [(380, True), (1400, False)])
def test_a_profile_is_drawn_as_a_flame_graph(serve: Serve, show: Open, width: int, dark: bool) -> None:
    job = skewed()
    job.last = profile_of("warehouse", 1, ended_at=time.time())
    page = show(serve(job), job, width=width, dark=dark)
    status, frames = page.locator("#profile-status"), page.locator("#profile .frame")
    expect(status).to_contain_text("“warehouse[1]” worked in 91 % of 100 samples, 25 % of them on the processor")
    expect(page.locator("#profile li").first).to_contain_text("77 % ask (<i>service.py:40), 2 % on the processor")
    expect(page.locator("#profile .lines li")).to_have_count(5)
    expect(frames.first).to_be_visible()
    asks = page.get_by_role("treeitem", name="ask (<i>service.py:40): 77 % of the samples, 2 %")
    plain, striped = asks.locator(".on"), asks.locator("rect[fill]")
    assert striped.bounding_box()["width"] > 10 * plain.bounding_box()["width"]  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_the_keyboard_moves_in_a_flame_graph(serve: Serve, show: Open) -> None:
    job = skewed()
    job.last = profile_of("warehouse", 1)
    page = show(serve(job), job)
    reached = "document.activeElement.dataset.key"
    page.locator('#profile .frame[tabindex="0"]').focus()
    for key, expected in (("Down", "/0"), ("Down", "/0/0"), ("Down", "/0/0/0"), ("Right", "/0/0/1")):
        page.keyboard.press(f"Arrow{key}")
        assert page.evaluate(reached) == expected
    expect(page.locator("#flame-words")).to_contain_text("ask (<i>service.py:7): 7 % of the samples, 100 % of them")
    assert page.locator('#profile .frame[tabindex="0"]').count() == 1
    whole = page.locator('[data-key="/0/0/1"] .outline').bounding_box()
    page.keyboard.press("Enter")
    assert page.evaluate(reached) == "/0/0/1"
    wide = page.locator('[data-key="/0/0/1"] .outline').bounding_box()
    assert wide["width"] > 5 * whole["width"]  # type: ignore[index]
    page.keyboard.press("Escape")
    assert page.evaluate(reached) == ""
    again = page.locator('[data-key="/0/0/1"] .outline').bounding_box()
    assert again["width"] < 2 * whole["width"]  # type: ignore[index]


def test_a_profile_is_taken_on_request(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    expect(page.locator("#profile-status")).to_contain_text("No function was profiled yet")
    expect(page.locator("#profile-operator")).to_have_value("warehouse")
    page.locator("#profile-operator").select_option("out")
    page.get_by_role("button", name="Profile for 2 seconds").click()
    expect(page.locator("#profile-status")).to_contain_text("“out[0]” worked in")
    assert job.profiled == [("out", 0, 2.0)]
    job.last = profile_of("warehouse", 1, ended_at=time.time())
    job.go_on(slow_job())
    expect(page.locator("tr.cause")).to_have_count(2)
    expect(page.locator("#profile-status")).to_contain_text("“out[0]” worked in")


def test_no_profile_can_be_asked_for_before_the_operators_are_known(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    made = """async () => {
        const node = document.createElement("div");
        const { makeProfile } = await import("/page/profile.js");
        makeProfile(node, "job");
        return node.querySelector(".controls").hidden;
    }"""
    assert page.evaluate(made)


def test_a_profile_that_cannot_be_taken_says_why(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job, refused=409)
    button = page.get_by_role("button", name="Profile for 2 seconds")
    expect(button).to_be_visible()
    refusal = ProfileError("warehouse[1] could not be profiled: the task has ended")

    def refused(*_: object) -> None:
        raise refusal

    job.profile = refused  # type: ignore[method-assign, assignment]
    button.click()
    expect(page.locator("#profile-status")).to_have_text(refusal.message)


def test_the_page_works_with_the_keyboard_alone(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    expect(page.locator(".vertex")).to_have_count(3)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.key ?? document.activeElement.id"))
        if page.evaluate("document.activeElement.dataset.key") == "vertex-2":
            page.keyboard.press("Enter")
    assert {"vertex-0", "vertex-2", "warehouse[1]", "history-task", "history-range", "count-from-here"} <= reached
    expect(page.locator("#history-task")).to_have_value("2/0")


def test_the_focus_stays_where_it_is_when_the_page_changes(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    page.locator('[data-key="warehouse[0]"]').focus()
    job.go_on(slow_job())
    expect(page.locator("tr.cause")).to_have_count(2)
    assert page.evaluate("document.activeElement.dataset.key") == "warehouse[0]"


def test_the_verdict_changes_only_where_its_text_does(serve: Serve, show: Open) -> None:
    """The numbers of a cause change each second: the focus and a screen reader stay where they are."""
    job = slow_job()
    first = job.diagnose()[0]
    findings = [first, replace(first, place="'out[1]'")]
    job.diagnose = lambda: list(findings)  # type: ignore[method-assign]
    page = show(serve(job), job)
    kept = "[...document.querySelectorAll('#verdict .headline, #verdict summary')]"
    page.locator("#verdict summary").focus()
    page.keyboard.press("Enter")
    page.evaluate(f"{kept}.forEach((node) => {{ node.mine = true; }})")
    for seconds in (3, 4):
        cause = replace(first.cause, text=f"it takes {seconds} s", evidence={"per_batch_s": float(seconds)})
        findings[:] = [replace(each, cause=cause) for each in findings]
        job.go_on(job)
        for facts in page.locator("#verdict .facts").all():
            expect(facts).to_contain_text(f"it takes {seconds} s")
        expect(page.locator("#verdict .also")).to_be_visible()
        assert page.evaluate(f"{kept}.map((node) => node.mine)") == [True, True]
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    findings.append(replace(first, place="'numbers[1]'"))
    job.go_on(job)
    expect(page.locator("#verdict summary")).to_have_text("2 more places")
    assert page.evaluate(f"{kept}.map((node) => node.mine)") == [True, True]
    findings[0] = replace(first, waits=("numbers", "out"))
    job.go_on(job)
    expect(page.locator(".headline")).to_contain_text("“numbers”, “out” wait for")
    job.end(time.time())
    expect(page.locator("#verdict")).to_contain_text("In its last seconds:")
    expect(page.locator("#verdict .also")).to_have_count(2)
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_names_are_text(serve: Serve, show: Open) -> None:
    name = "<img src=x onerror=alert(1)>"
    tasks = {**both(0, WAITS), **both(1, SLEEPS), **both(2, {"busy_s": 0.5, "rows": 100})}
    job = job_with(tasks, name, "b" * 200, "out", name=name)
    page = show(serve(job), job)
    expect(page.locator("h1")).to_have_text(name)
    expect(page.locator(".headline")).to_contain_text(f"“{name}” waits")
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400


def test_the_exchanges_and_the_event_time_of_a_vertex_are_drawn(serve: Serve, show: Open) -> None:
    now = time.time()
    waits = {**WAITS, "watermark": round((now - 42) * 1e6), "event_time": 1.0}
    job = job_with({**both(0, waits), **both(1, SLEEPS), **both(2, IDLES)}, begin=now)
    page = show(serve(job), job)
    page.locator("#history-task").select_option("0/0")
    drawn = page.locator("figure")
    expect(drawn.filter(has_text="Exchanges, rows per second").locator(".spoken")).to_have_text(
        "Now: numbers -> warehouse 100"
    )
    expect(drawn.filter(has_text="Exchanges, bytes per second").locator(".spoken")).to_have_text(
        "Now: numbers -> warehouse 1.6 kB/s"
    )
    expect(drawn.filter(has_text="Event time behind the clock").locator(".spoken")).to_have_text("Now: watermark 42 s")
    page.locator("#history-task").select_option("2/0")
    expect(drawn.filter(has_text="Event time")).to_have_count(0)
    expect(drawn.filter(has_text="bytes per second").locator(".spoken")).to_contain_text("warehouse -> out")


#: Runs in the page: from then on, `cut` has the texts of charts that begin left of their canvas.
WATCH_TEXTS = """() => {
    window.cut = [];
    window.texts = 0;
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const part = { right: 1, end: 1, center: 0.5 }[this.textAlign] ?? 0;
        const left = this.getTransform().transformPoint({ x: x - part * this.measureText(text).width, y }).x;
        texts += 1;
        if (left < 0) cut.push(text);
        return draw.call(this, text, x, y);
    };
}"""


#: Looks for the element each time: the page makes its rows anew when numbers come.
ON_ONE_LINE = """(selector) => {
    const height = document.querySelector(selector)?.getBoundingClientRect().height;
    return 0 < height && height < 40;
}"""


@pytest.mark.parametrize("width", [380, 1400])
def test_no_text_of_a_chart_and_no_name_is_cut(serve: Serve, show: Open, width: int) -> None:
    job = skewed()
    page = show(serve(job), job, width=width)
    drawn = page.locator("figure").filter(has_text="bytes per second").locator(".spoken")
    expect(drawn).to_contain_text("kB/s")
    page.evaluate(WATCH_TEXTS)
    page.locator("#history-task").select_option("0/0")
    expect(drawn).to_have_text("Now: numbers -> warehouse 1.6 kB/s")
    page.wait_for_function("texts > 10")
    assert page.evaluate("cut") == []
    page.wait_for_function(ON_ONE_LINE, arg='[data-key="warehouse[1]"]')


def test_a_chart_begins_no_earlier_than_its_job(serve: Serve, show: Open) -> None:
    job = skewed()
    job.state = replace(job.state, started_at=time.time() - 12)
    page = show(serve(job), job)
    with page.expect_request(lambda request: "/series?" in request.url) as asked:
        page.locator("#history-task").select_option("0/0")
    assert int(parse_qs(urlsplit(asked.value.url).query)["from"][0]) == int(job.state.started_at or 0)


def test_a_subtask_beyond_the_list_is_in_it_when_it_is_shown(serve: Serve, show: Open) -> None:
    slow, count = 230, 240
    topology = line("numbers", "warehouse", "out", parallelism=count)
    works = {"busy_s": 0.1, "idle_s": 0.9, "cpu_s": 0.1, "rows": 100, "batches": 10}
    tasks = {**{(0, each): WAITS for each in range(count)}, **{(1, each): works for each in range(count)}}
    made = snapshots(topology, {**tasks, (1, slow): SLEEPS}, begin=time.time() - 12)
    job = FakeJob(topology=topology, taken=[_complete(topology, each) for each in made[-5:]])
    page = show(serve(job), job)
    expect(page.locator("#history-task")).to_have_value(f"1/{slow}", timeout=30_000)
    expect(page.locator("#history-task option")).to_have_count(3 * 200 + 1)


def test_the_history_of_a_chain_with_a_long_name_is_drawn(serve: Serve, show: Open) -> None:
    """The address of a request has at most 4,096 characters, and a letter takes up to nine."""
    chain = " -> ".join(f"注文の通貨を換算する演算子{each}" for each in range(6))
    job = job_with(
        {**both(0, WAITS), **both(1, SLEEPS), **both(2, IDLES)}, "numbers", chain, "out", begin=time.time() - 12
    )
    page = show(serve(job), job)
    expect(page.locator("#history-task")).to_have_value("1/0")
    expect(page.locator("figure .spoken").first).to_contain_text("Now: busy 100 %, back-pressured 0 %")


def test_counts_after_a_restart_are_those_of_the_whole_job(serve: Serve, show: Open) -> None:
    job = skewed()
    job.state = replace(job.state, restarts=1)
    page = show(serve(job), job)
    expect(page.locator("#history")).to_contain_text("Counted since the start of the job")


def test_counts_begin_where_the_reader_says(serve: Serve, show: Open) -> None:
    job = skewed()
    page = show(serve(job), job)
    first = page.get_by_role("group", name="Counts").locator("tbody tr").first
    expect(first).to_contain_text("2,200")
    page.get_by_role("button", name="Count from here").click()
    expect(first).not_to_contain_text("2,200")
    page.get_by_role("button", name="Count from the start").click()
    expect(first).to_contain_text("2,200")


def test_lag_checkpoints_and_ended_subtasks_are_shown(serve: Serve, show: Open) -> None:
    tasks = {**both(0, {**WAITS, "lag_s": 0.5}), (1, 0): {**IDLES, "ended": True}, (1, 1): SLEEPS, **both(2, IDLES)}
    job = job_with(tasks, ended_checkpoints=[checkpoint(1), checkpoint(2, failure="the disk is full")])
    page = show(serve(job), job)
    expect(page.locator("#lag tbody").first).to_contain_text("never: it falls back")
    expect(page.locator("#checkpoints tbody tr").first).to_contain_text("failed: the disk is full")
    last = page.locator("#subtasks tbody tr").last
    expect(last).to_contain_text("warehouse[0]ended")
    assert last.locator(".bar").count() == 0


def test_of_a_job_in_stages_only_those_that_are_over_are_drawn_as_ended(serve: Serve, show: Open) -> None:
    job = job_with({**both(0, {**IDLES, "ended": True}), **both(1, SLEEPS), **both(2, IDLES)})
    for taken in job.taken:
        tasks = taken.reports[0]["tasks"]
        tasks[:] = [task for task in tasks if task["vertex"] < 2]
    page = show(serve(job), job)
    expect(page.locator(".vertex")).to_have_count(3)
    expect(page.locator(".vertex.ended")).to_have_count(1)
    expect(page.locator(".vertex.ended")).to_have_attribute("data-key", "vertex-0")


def test_an_ended_job_and_a_lost_driver_are_said(serve: Serve, show: Open) -> None:
    job = skewed()
    served = serve(job, fresh=True)
    page = show(served, job)
    expect(page.locator("#job-state")).to_contain_text("RUNNING")
    job.end(1020.0, "FAILED", "UserFunctionError: no price")
    expect(page.locator(".headline").first).to_contain_text("The job is FAILED: UserFunctionError: no price")
    expect(page.locator("#notice")).to_be_hidden()


def test_several_jobs_are_listed_and_one_is_opened(serve: Serve, show: Open) -> None:
    page = show(serve(healthy(), slow_job(id="2f-1", name="late orders")), None)
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="late orders").click()
    expect(page.locator("h1")).to_have_text("late orders")
    expect(page.locator(".vertex")).to_have_count(3)
    page.get_by_role("link", name="All jobs").click()
    expect(page.locator("tbody tr")).to_have_count(2)
