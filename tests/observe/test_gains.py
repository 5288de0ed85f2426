"""What a remedy gains, on snapshots that are made up: only vertices that get more rows limit it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.observe.causes import factor_text
from headgate.observe.diagnosis import diagnose, windows_of
from headgate.observe.finding import Finding
from headgate.observe.gains import PACE, free_processors, with_full_buffers, with_more_processes
from headgate.observe.metrics_window import Window
from headgate.observe.topology import Topology
from tests.observe.made_metrics import Does, branches, line, snapshots

WAITS = {"soft_backpressured_s": 0.9, "busy_s": 0.1, "cpu_s": 0.05, "rows": 100}
IDLES = {"idle_s": 0.9, "busy_s": 0.1, "cpu_s": 0.05, "rows": 100}
WORKS = {"busy_s": 1.0, "cpu_s": 1.0, "rows": 100, "batches": 10}
SLEEPS = {"busy_s": 1.0, "cpu_s": 0.01, "rows": 100, "batches": 3}


def found(topology: Topology, *does: Does, **options: Any) -> list[Finding]:
    return diagnose(topology, snapshots(topology, {(id_, 0): each for id_, each in enumerate(does)}, **options))


def window_of(topology: Topology, *does: Does, **options: Any) -> Window:
    return windows_of(topology, snapshots(topology, {(id_, 0): each for id_, each in enumerate(does)}, **options))[-1]


APART = branches(("alone", "numbers", "slow"), (1, 2))


def test_another_pipeline_of_the_job_does_not_limit_a_gain() -> None:
    (slow,) = [each for each in found(APART, WORKS, WAITS, SLEEPS) if each.operator == "slow"]
    assert slow.sentence.endswith("4 subtasks would carry 4.0 times as many rows")


def test_a_sibling_of_the_slow_vertex_limits_a_gain() -> None:
    topology = branches(("numbers", "slow", "other", "out"), (0, 1), (0, 2), (2, 3))
    half = {"busy_s": 0.5, "idle_s": 0.5, "rows": 100}
    (slow,) = found(topology, WAITS, SLEEPS, IDLES, half)
    assert slow.sentence.endswith("2 subtasks would carry 2.0 times as many rows (then 'out' is the limit)")


PACED = {**IDLES, "lag_s": 0.0}
BEHIND = {**WAITS, "lag_s": 0.25}


@pytest.mark.parametrize(
    ("alone", "numbers", "limit", "gain"),
    [
        (PACED, WAITS, "", 4.0),
        (PACED, BEHIND, PACE, 4 / 3),
        ({**BEHIND, "lag_s": 0.5}, BEHIND, PACE, 4 / 3),
        (IDLES, BEHIND, PACE, 4 / 3),
    ],
)
def test_only_the_pace_of_its_own_sources_limits_a_gain(alone: Does, numbers: Does, limit: str, gain: float) -> None:
    (slow,) = [each for each in found(APART, alone, numbers, SLEEPS) if each.operator == "slow"]
    assert slow.remedy.limit == limit
    assert slow.remedy.gain == pytest.approx(gain)


@pytest.mark.parametrize(
    ("other", "limit"),
    [
        (WAITS, ""),
        ({**WAITS, "lag_s": 0.1}, PACE),
        ({"busy_s": 0.0, "ended": True, "lag_s": 0.9}, PACE),
        ({"busy_s": 0.0, "ended": True}, PACE),
    ],
    ids=["no schedule", "a schedule", "ended, with a schedule", "ended"],
)  # fmt: skip
def test_a_source_without_a_schedule_beside_one_with_a_schedule_has_more_rows(other: Does, limit: str) -> None:
    topology = branches(("numbers", "others", "slow"), (0, 2), (1, 2))
    (slow,) = found(topology, BEHIND, other, {**SLEEPS, "rows": 200})
    assert slow.remedy.limit == limit
    assert slow.remedy.gain == pytest.approx(4 / 3 if limit else 4.0)


def test_another_pipeline_does_not_limit_the_gain_of_a_faster_exchange() -> None:
    (slow,) = [each for each in found(APART, WORKS, WAITS, IDLES) if each.operator is None]
    assert (slow.place, slow.remedy.gain, slow.remedy.limit) == ("the exchange 'numbers -> slow'", 4.0, "")


def test_another_pipeline_does_not_limit_the_gain_of_fuller_buffers_or_more_processes() -> None:
    sends = {"busy_s": 1.0, "output_s": 0.9, "interpreter_wait_s": 0.5, "rows": 100}
    edges = {"numbers -> slow": {"rows_out": 100, "bytes_out": 100, "buffers_out": 100}}
    window = window_of(APART, WORKS, sends, IDLES, edges=edges)
    assert "alone" not in with_full_buffers([window], 1).limit
    (task,) = window.of(1)
    gain = with_more_processes(window, [task])
    assert gain is not None
    assert (gain.factor, gain.limit) == (2.0, "its operators are busy")


ALL = list(range(8))
#: A process of a TaskManager on a machine with six idle processors.
PROCESS = {"cores": 8, "machine_cpu_s": 2.0, "cpu_s": 0.5}


def free(*machines: dict[str, Any], driver: dict[str, Any] | None = None) -> float | None:
    """Return the free processors for TaskManagers with these processes, on one machine."""
    topology = branches(("numbers",))
    made = [snapshots(topology, {}, machine={**PROCESS, "pid": 10 + pid, **each}) for pid, each in enumerate(machines)]
    drivers = snapshots(topology, {}, driver=None if driver is None else {"cpu_s": 0.5, **driver})
    joined = [
        replace(each[0], reports=tuple(report for snapshot in each[1:] for report in snapshot.reports))
        for each in zip(drivers, *made, strict=True)
    ]
    return free_processors(windows_of(topology, joined)[-1])


@pytest.mark.parametrize(
    ("machines", "left"),
    [
        ([{}], 6.0),
        ([{"affinity": ALL, "quotas": []}], 6.0),
        ([{"affinity": None, "quotas": None}], 6.0),
        ([{"affinity": ALL, "quotas": [[3, 2.0]]}], 1.5),
        ([{"quotas": [[3, 2.0]]}, {"quotas": [[3, 2.0]]}], 1.0),
        ([{"quotas": [[3, 2.0]]}, {"quotas": [[4, 2.0]]}], 3.0),
        ([{"quotas": [[3, 2.0], [5, 2.75]]}, {"quotas": [[4, 2.0], [5, 2.75]]}], 1.75),
        ([{"quotas": [[3, 0.25]]}, {"quotas": [[4, 2.0]]}], 1.5),
        ([{"quotas": [[3, 2.0]]}, {"quotas": []}], 6.0),
        ([{"affinity": [0, 1]}], 1.5),
        ([{"affinity": [0, 1]}, {"affinity": [0, 1]}], 1.0),
        ([{"affinity": [0, 1]}, {"affinity": [2, 3]}], 3.0),
        ([{"affinity": [0, 1]}, {}], 6.0),
        ([{"affinity": [0, 1], "quotas": [[3, 1.0]]}], 0.5),
        ([{"affinity": [0, 1], "quotas": [[3, 1.0]], "machine_cpu_s": 8.0}], 0.0),
    ],
    ids=[
        "old recordings", "no limits", "unknown limits", "a quota", "one quota of both", "two quotas",
        "two quotas below another", "a quota that is used up", "a quota of one only",
        "few processors", "the same few", "others each", "few of one only", "both", "a full machine",
    ],
)  # fmt: skip
def test_quotas_and_affinity_limit_the_free_processors(machines: list[dict[str, Any]], left: float) -> None:
    assert free(*machines) == pytest.approx(left)


@pytest.mark.parametrize(
    ("driver", "left"),
    [
        ({"affinity": [0, 1], "quotas": [[3, 1.0]]}, 0.0),
        ({"affinity": [0, 1], "quotas": []}, 0.5),
        ({"affinity": [7], "quotas": []}, 0.5),
        ({"affinity": [0, 1], "quotas": [[3, 1.0]], "host": "other"}, 0.5),
    ],
)
def test_the_driver_uses_a_quota_that_it_shares(driver: dict[str, Any], left: float) -> None:
    assert free({"affinity": [0, 1], "quotas": [[3, 1.0]]}, driver=driver) == pytest.approx(left)


@pytest.mark.parametrize(
    ("affinity", "left"),
    [(ALL, 1.5), ([1, 2], 1.0), ([0, 1], 0.0), (None, 0.0)],
    ids=["elsewhere", "partly elsewhere", "on the same", "unknown"],
)
def test_a_driver_uses_the_processors_of_pinned_taskmanagers_only_if_it_must(
    affinity: list[int] | None, left: float
) -> None:
    assert free({"affinity": [0, 1]}, driver={"affinity": affinity, "cpu_s": 1.5}) == pytest.approx(left)


def test_more_subtasks_gain_nothing_in_a_container_whose_quota_is_used_up() -> None:
    topology = branches(("numbers", "sums", "out"), (0, 1), (1, 2))
    machine = {"cores": 8, "machine_cpu_s": 1.0, "cpu_s": 1.0, "affinity": ALL, "quotas": [[3, 1.0]]}
    (finding,) = found(topology, WAITS, WORKS, IDLES, machine=machine)
    assert finding.sentence.endswith("more subtasks gain nothing: all processors are in use")


BRANCH = branches(("numbers", "sums", "out"), (0, 1), (1, 2))
#: Tasks that can take a third more rows.
THIRD_MORE = {"busy_s": 0.75, "idle_s": 0.25, "cpu_s": 0.4, "rows": 100}


@pytest.mark.parametrize(
    ("out", "gain", "limit"),
    [(IDLES, 2.0, "its operators are busy"), (THIRD_MORE, 4 / 3, "'out' is the limit")],
    ids=["alone", "before a busy sink"],
)
def test_without_snapshots_their_time_is_left_for_rows(out: Does, gain: float, limit: str) -> None:
    takes = {"busy_s": 1.0, "snapshot_s": 0.5, "in_s": 0.4, "cpu_s": 0.9, "rows": 100, "batches": 10}
    (finding,) = found(BRANCH, WAITS, takes, out)
    assert (finding.cause.name, finding.remedy.limit, finding.remedy.at_least) == ("checkpoint", limit, False)
    assert finding.remedy.gain == pytest.approx(gain)
    assert finding.remedy.text.endswith(
        f"which would carry up to {factor_text(gain)} times as many rows (then {limit})"
    )


@pytest.mark.parametrize(
    ("numbers", "gain", "limit"),
    [(WAITS, 2.0, "its operators are busy"), (THIRD_MORE, 4 / 3, "'numbers' is the limit")],
    ids=["alone", "behind a busy source"],
)
def test_without_its_driver_a_sink_has_more_time_for_rows(numbers: Does, gain: float, limit: str) -> None:
    topology = branches(("numbers", "out"), (0, 1))
    (finding,) = found(topology, numbers, {"hard_backpressured_s": 0.5, "busy_s": 0.5, "rows": 100})
    assert (finding.cause.name, finding.remedy.limit, finding.remedy.at_least) == ("slow_driver", limit, False)
    assert finding.remedy.gain == pytest.approx(gain)
    assert finding.remedy.text.endswith(
        f"which would carry up to {factor_text(gain)} times as many rows (then {limit})"
    )


def test_without_its_driver_a_sink_may_gain_more_than_the_largest_gain_that_is_reported() -> None:
    topology = branches(("numbers", "out"), (0, 1))
    (finding,) = found(topology, WAITS, {"hard_backpressured_s": 0.9, "busy_s": 0.1, "rows": 100})
    assert finding.remedy.text.endswith("which could carry 4.0 times as many rows or more")
    assert finding.remedy.gain == 4.0


@pytest.mark.parametrize(("cores", "condition"), [(8, ""), (None, " if processors are free")])
def test_the_gain_of_more_processes_needs_free_processors(cores: int | None, condition: str) -> None:
    waits = {**WORKS, "interpreter_wait_s": 0.5, "cpu_s": 0.45}
    (finding,) = found(BRANCH, WAITS, waits, IDLES, machine={"cores": cores})
    assert finding.cause.name == "interpreter_lock"
    assert f"which would carry 2.0 times as many rows{condition} (then its operators are busy)" in finding.sentence


def test_more_splits_need_free_processors_as_more_subtasks_do() -> None:
    topology = line("numbers", "out", parallelism=3)
    idles = {"idle_s": 1.0}
    tasks = {(0, 0): WORKS, (0, 1): idles, (0, 2): idles, **{(1, each): IDLES for each in range(3)}}
    unknown: dict[str, Any] = {"cores": None}
    (finding,) = diagnose(topology, snapshots(topology, tasks, machine=unknown))
    assert finding.cause.name == "few_splits"
    assert "would carry 3.0 times as many rows if processors are free (then all its subtasks read)" in finding.sentence
