"""`headgate demo --stall`: one subtask is slow for a while, and rows do not change."""

from __future__ import annotations

import json
import re
import statistics
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import headgate as hg
from headgate.demo import stall
from headgate.demo.demo_command import Demo, _parser
from headgate.demo.stall import NAME, SlowSubtask, speedup_of
from headgate.web.job_pages import SWITCH
from tests.demo.test_demo import command


def test_only_one_subtask_waits_and_only_for_the_given_time() -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(taskmanagers=2))
    batches = [pa.record_batch({"n": pa.array(range(10 * start, 10 * start + 10))}) for start in range(40)]
    rows = env.from_source(hg.sources.iterable(batches)).rebalance()
    waits = SlowSubtask(
        1.0, speedup_of(60.0), before=0.0
    )  # 53 ms for a row, and 200 rows for each subtask: more than a second
    collected = hg.sinks.collect()
    rows.map_batches(waits, schema=rows.schema).name(NAME).sink_to(collected)
    result = env.execute()
    assert sorted(collected.to_table()["n"].to_pylist()) == list(range(400))
    busy = {task["subtask"]: task["busy_s"] for name, task in result.metrics["tasks"].items() if NAME in name}
    assert 0.9 < busy[stall.SUBTASK] < 6.0, "all its rows would take ten seconds"
    assert busy[1 - stall.SUBTASK] < busy[stall.SUBTASK] / 2


def test_a_stall_is_a_replay_that_has_room_for_it() -> None:
    demo = Demo.of(_parser().parse_args(["--stall", "20", "--open"]))
    assert demo.speedup == speedup_of(20) == 365 * 24 * 3600 / (stall.BEFORE + 20 + stall.AFTER)
    assert demo.opens_page
    assert Demo.of(_parser().parse_args(["--stall", "20", "--speedup", "9"])).speedup == 9
    assert Demo.of(_parser().parse_args([])) == Demo()


def test_on_a_desktop_the_page_opens_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert Demo.of(_parser().parse_args([])).opens_page
    assert not Demo.of(_parser().parse_args(["--no-open"])).opens_page
    monkeypatch.delenv("DISPLAY")
    assert not Demo.of(_parser().parse_args([])).opens_page


Series = Mapping[str, Mapping[float, float]]
_SLOW, _STALLED_HALF, _OTHER_HALF = (
    f"operator/{NAME}[{stall.SUBTASK}]/busy_s",
    "edge/with_seats -> carrier_hours/rows_out",
    "edge/with_seats_too -> route_days/rows_out",
)
_OTHERS_WAIT = [f"task/flights_too -> departed_too -> with_seats_too[{each}]/soft_backpressured_s" for each in (0, 1)]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_slow_subtask_is_named_and_the_other_half_keeps_its_pace(tmp_path: Path) -> None:
    """While the source of one half stands still, the other half sends as many rows as before, over the same
    connections."""
    line, environment = command("--stall", "20", "--no-open", "--json", "-", folder=tmp_path)
    del environment[SWITCH]
    with Popen(line, env=environment, stdout=PIPE, stderr=PIPE, text=True) as demo:
        assert demo.stderr is not None
        address = next((found[1] for line in demo.stderr if (found := re.search(r"its page: (\S+)", line))), None)
        assert address is not None, "the demo ended without a page"
        job = JobPage(address)
        findings = job.findings_while_behind()
        series = job.series()
        report, said = demo.communicate(timeout=200)
    assert demo.returncode == 0, said
    assert json.loads(report)["matches"]
    assert {(each["operator"], *each["subtasks"]) for each in findings} == {(NAME, stall.SUBTASK)}
    assert ["with_seats"] in [each["waits"] for each in findings]
    assert re.search(rf"job 'demo' .*behind: .*'{NAME}\[1\]'", said), said
    assert "with_seats_too' wait" not in said

    slow = [at for at, busy in series[_SLOW].items() if busy > 0.95]
    before = [at for at in series[_SLOW] if slow[0] - 10 <= at < slow[0] - 1]
    usual, others = mean(series[_STALLED_HALF], before), mean(series[_OTHER_HALF], before)
    stands = [at for at in slow if series[_STALLED_HALF].get(at, 0.0) < 0.05 * usual]
    assert len(stands) >= 4, "the stall did not reach the source"
    assert mean(series[_OTHER_HALF], stands) == pytest.approx(others, rel=0.2)
    for name in _OTHERS_WAIT:
        assert mean(series[name], stands) < 0.05


class JobPage:
    """The JSON answers of the page of a job."""

    def __init__(self, address: str) -> None:
        server, _, job = address.partition("/#")
        self._job = f"{server}/jobs/{job}"

    def findings_while_behind(self) -> list[dict[str, Any]]:
        """Wait for the end of the job. Return what each event of the page found while the job was behind."""
        with urllib.request.urlopen(f"{self._job}/events", timeout=60) as events:
            overviews = [json.loads(line[6:]) for line in events if line.startswith(b"data: ")]
        behind = [each["diagnosis"] for each in overviews if each and each["diagnosis"]["severity"] == "behind"]
        return [finding for diagnosis in behind for finding in diagnosis["findings"]]

    def series(self) -> Series:
        """Return the mean values of the series by time."""
        names = (_SLOW, _STALLED_HALF, _OTHER_HALF, *_OTHERS_WAIT)
        with urllib.request.urlopen(f"{self._job}/series?{urlencode([('name', name) for name in names])}") as reply:
            found = json.load(reply)["series"]
        return {each["name"]: {at: value for at, _, value, _ in each["points"]} for each in found}


def mean(points: Mapping[float, float], times: Sequence[float]) -> float:
    return statistics.mean(points[at] for at in times if at in points)
