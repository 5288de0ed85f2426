"""`headgate demo --stall`: one subtask is slow for a while, and rows do not change."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate.demo import stall
from headgate.demo.demo_command import Demo, _parser
from headgate.demo.stall import NAME, SlowSubtask, speedup_of
from tests.demo.test_demo import run_demo


def test_only_one_subtask_waits_and_only_for_the_given_time() -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(taskmanagers=2))
    batches = [pa.record_batch({"n": pa.array(range(10 * start, 10 * start + 10))}) for start in range(40)]
    rows = env.from_source(hg.sources.iterable(batches)).rebalance()
    waits = SlowSubtask(
        1.0, speedup_of(60.0), before=0.0
    )  # 11 ms for a row, and 200 rows for each subtask: more than a second
    collected = hg.sinks.collect()
    rows.map_batches(waits, schema=rows.schema).name(NAME).sink_to(collected)
    result = env.execute()
    assert sorted(collected.to_table()["n"].to_pylist()) == list(range(400))
    busy = {task["subtask"]: task["busy_s"] for name, task in result.metrics["tasks"].items() if NAME in name}
    assert 0.9 < busy[stall.SUBTASK] < 3.0
    assert busy[1 - stall.SUBTASK] < 0.5


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


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_slow_subtask_is_named_and_the_other_half_keeps_its_pace(tmp_path: Path) -> None:
    done = run_demo("--stall", "20", "--json", "-", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["matches"]
    assert f"falls behind: 'with_seats' waits for '{NAME}[1]'" in done.stderr
    assert "with_seats_too' waits" not in done.stderr
