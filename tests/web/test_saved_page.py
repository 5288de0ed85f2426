"""The page as one file: its size, its policy, and the script that it is made of."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

import headgate as hg
from headgate.errors import RecordingError
from headgate.observe.diagnosis import LATEST
from headgate.observe.recording import read_recording
from headgate.web.page_bundle import bundled
from headgate.web.recorded_job import RecordedJob
from headgate.web.saved_page import MOST_BYTES, OF_OPERATOR, OF_TASK, save_page, saved_page
from tests.observe.made_metrics import line, snapshots
from tests.runtime.jobs import NUMBERS, environment
from tests.web.conftest import Serve
from tests.web.fake_job import IDLES, FakeJob, job_with_channels, slow_job

JOB = "/jobs/1f-0a0b0c0d"


def test_the_driver_serves_the_file(serve: Serve) -> None:
    reply = serve(job_with_channels(3)).get(f"{JOB}/page")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-disposition"] == "attachment; filename=headgate-1f-0a0b0c0d.html"
    assert b"warehouse[2]" in reply.body


def test_the_file_allows_its_own_scripts_alone() -> None:
    page = saved_page(slow_job()).decode()
    policy = re.search(r'content-security-policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]
    assert not re.search(r'(?:src|href)="[^#"]', page.partition("<script>")[0])


def test_a_name_cannot_end_the_script_that_has_the_values() -> None:
    name = "</script><script>alert(1)</script>"
    page = saved_page(slow_job(name=name)).decode()
    assert name not in page
    assert "\\u003c/script>" in page


def test_the_file_has_all_series_that_the_page_draws() -> None:
    """A series in the script is `["label", "counter", "colour"]`; a chart says whose series it has."""
    script = (files("headgate.web") / "page/charts.js").read_text("utf-8")
    charts = re.findall(r'of: "(task|operator)",\s*series: \[((?:\s*\[[^]]*\],?)+)\s*\]', script)
    drawn = {(of, each) for of, series in charts for each in re.findall(r'\["[^"]*", "(\w+)"', series)}
    assert ("task", "throttle_wait_s") in drawn
    assert ("operator", "lag_s") in drawn
    assert drawn == {("task", each) for each in OF_TASK} | {("operator", each) for each in OF_OPERATOR}


def test_the_licences_of_the_libraries_are_in_the_file() -> None:
    assert saved_page(slow_job()).count(b"Permission is hereby granted") == 2


def test_a_large_job_fits_into_five_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = line("numbers", "w" * 100, "out", parallelism=170)
    tasks = {(vertex, subtask): IDLES for vertex in range(3) for subtask in range(170)}
    some = snapshots(topology, tasks, count=30)
    taken = [replace(some[at % 30], at=1000.0 + at) for at in range(300)]
    job = FakeJob(topology=topology, taken=taken[-LATEST:])
    history = FakeJob(topology=topology, taken=taken)._history()
    job.series = history.points  # type: ignore[method-assign]
    assert 500_000 < len(saved_page(job)) <= MOST_BYTES
    monkeypatch.setattr("headgate.web.saved_page.MOST_BYTES", 400_000)
    assert 380_000 < len(saved_page(job)) <= 400_000, "series of fewer subtasks"


def test_a_finished_job_saves_its_page(tmp_path: Path) -> None:
    env = environment()
    env.from_source(hg.sources.iterable([[{"n": 1}]], schema=NUMBERS)).name("numbers").sink_to(hg.sinks.null())
    job = env.execute_async("orders")
    job.wait(60)
    job.save_page(tmp_path / "orders.html")
    assert b'"state":"FINISHED"' in (tmp_path / "orders.html").read_bytes()
    assert stat.S_IMODE((tmp_path / "orders.html").stat().st_mode) == 0o600


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot write the page .*no/x.html"):
        save_page(slow_job(), tmp_path / "no/x.html")


def test_a_recording_has_a_page(tmp_path: Path) -> None:
    job = job_with_channels(3)
    job.save_recording(tmp_path / "recording")
    page = saved_page(RecordedJob(read_recording(tmp_path / "recording")))
    assert b"RECORDED" in page
    assert b"task/warehouse[1]/busy_s" in page
    assert b"its function takes" in page


# --- the script


def test_modules_become_one_script() -> None:
    modules = {
        "app.js": 'import { one, two as second } from "./a.js";\nimport * as b from "./b.js";\none(second, b.three);',
        "a.js": 'import { three } from "./b.js";\nexport function one() {}\nexport const two = three;',
        "b.js": "export let three = 3;",
    }
    assert bundled("app.js", modules) == "\n".join(
        [
            '"use strict";',
            "const module_b = (() => {", "let three = 3;", "return { three };", "})();",
            "const module_a = (() => {", "const { three } = module_b;", "function one() {}", "const two = three;",
            "return { one, two };", "})();",
            "const module_app = (() => {", "const { one, two: second } = module_a;", "const b = module_b;",
            "one(second, b.three);", "return {  };", "})();",
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('import x from "./a.js";', "app.js: this cannot be bundled: import x"),
        ("export default 3;", "app.js: this cannot be bundled: export default"),
        ('import { x } from "./app.js";', "in a circle: app.js -> app.js"),
    ],
)
def test_what_cannot_be_bundled_is_an_error(source: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        bundled("app.js", {"app.js": source})
