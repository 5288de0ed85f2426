"""Where a job is slow and why, on snapshots that are made up: each rule alone, and the healthy cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.observe.channel_columns import columns_of
from headgate.observe.diagnosis import diagnose, windows_of
from headgate.observe.finding import Finding, Severity
from tests.observe.made_metrics import Does, Tasks, branches, line, snapshots

#: A task that waits for room in its output most of the time, one that waits for input, and one that works.
WAITS = {"soft_backpressured_s": 0.9, "busy_s": 0.1, "cpu_s": 0.05, "rows": 100}
IDLES = {"idle_s": 0.9, "busy_s": 0.1, "cpu_s": 0.05, "rows": 100}
WORKS = {"busy_s": 1.0, "cpu_s": 1.0, "rows": 100, "batches": 10}
SLEEPS = {"busy_s": 1.0, "cpu_s": 0.01, "rows": 100, "batches": 3}


def both(vertex: int, does: Does) -> dict[tuple[int, int], Does]:
    return {(vertex, 0): does, (vertex, 1): does}


def test_the_slow_vertex_is_the_root_and_not_its_producers() -> None:
    topology = line("numbers", "ids", "warehouse", "out")
    tasks = {**both(0, WAITS), **both(1, WAITS), **both(2, SLEEPS), **both(3, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'warehouse'"
    assert finding.subtasks == (0, 1)
    assert finding.waits == ("ids",)
    assert finding.cause.name == "waiting_function"
    assert finding.severity is Severity.LIMIT


def test_the_sentence_says_where_why_and_what_to_do() -> None:
    topology = line("numbers", "warehouse", "out")
    tasks = {**both(0, WAITS), **both(1, SLEEPS), **both(2, {**IDLES, "busy_s": 0.5, "idle_s": 0.5})}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.sentence == (
        "'numbers' waits for 'warehouse': its function takes 0.33 s a batch, and its thread is off the processor for "
        "99% of it; 4 subtasks would carry 2.0 times as many rows (then 'out' is the limit)"
    )


def test_a_slow_operator_within_a_chain_is_named() -> None:
    topology = line("numbers", "sums -> out")
    tasks = {**both(0, WAITS), **both(1, {**SLEEPS, "in": "out"})}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.operator == "out"
    assert finding.cause.name == "slow_sink"


def test_a_busy_source_chain_whose_consumers_idle_is_the_root() -> None:
    topology = line("numbers -> warehouse", "out")
    tasks = {**both(0, {**SLEEPS, "in": "warehouse"}), **both(1, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.operator == "warehouse"
    assert finding.waits == ("out",)


ENDED = {"busy_s": 0.0, "ended": True}


@pytest.mark.parametrize(("numbers", "is_found"), [((ENDED, ENDED), True), ((ENDED, IDLES), False)])
def test_a_busy_vertex_of_a_later_stage_is_the_root(numbers: tuple[Does, Does], is_found: bool) -> None:
    """Its producers have ended, so none of them waits, and none sends rows. They wait in files."""
    topology = line("numbers", "sums", "out")
    tasks = {(0, 0): numbers[0], (0, 1): numbers[1], **both(1, SLEEPS), **both(2, IDLES)}
    findings = diagnose(topology, snapshots(topology, tasks))
    assert [(each.place, each.waits, each.remedy.gain) for each in findings] == [("'sums'", (), 4.0)] * is_found


@pytest.mark.parametrize(
    ("driver", "cause"),
    [
        (None, "machine_taken"),
        ({"cpu_s": 3.0}, "out_of_cpu"),
        ({"cpu_s": 3.0, "host": "other"}, "machine_taken"),
        ({"cpu_s": 3.0, "pid": 7}, "machine_taken"),
        ({"cpu_s": 3.0, "pid": 7, "pid_namespace": 2}, "out_of_cpu"),
    ],
    ids=[
        "unknown", "it computes", "on another machine", "it is the process of both TaskManagers",
        "in another container",
    ],
)  # fmt: skip
def test_the_driver_is_no_other_program(driver: dict[str, Any] | None, cause: str) -> None:
    """And a process counts once, also with two TaskManagers in it: five of eight processors are others'."""
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, WAITS), **both(1, {**WORKS, "run_delay_s": 0.5, "cpu_s": 0.5}), **both(2, IDLES)}
    made = snapshots(topology, tasks, machine={"machine_cpu_s": 8.0, "cpu_s": 3.0, "pid": 7}, driver=driver)
    nothing = {"tasks": [], "operators": [], "channels": columns_of([]), "links": [], "edges": []}
    both_in_one = [replace(each, reports=(*each.reports, {**each.reports[0], **nothing})) for each in made]
    (finding,) = diagnose(topology, both_in_one)
    assert finding.cause.name == cause


@pytest.mark.parametrize("busy", [(0.86, 1.0), (1.0, 0.86)])
def test_of_two_vertices_that_the_same_producer_awaits_the_busiest_comes_first(busy: tuple[float, float]) -> None:
    topology = branches(("numbers", "one", "other"), (0, 1), (0, 2))
    tasks = {(0, 0): WAITS, **{(id_, 0): {**SLEEPS, "busy_s": each} for id_, each in enumerate(busy, 1)}}
    found = [finding.operator for finding in diagnose(topology, snapshots(topology, tasks))]
    assert found == (["one", "other"] if busy[0] == 1.0 else ["other", "one"])


def test_one_subtask_with_most_of_the_rows_is_skew() -> None:
    topology = line("numbers", "sums", "out", parallelism=4)
    tasks = {(0, i): {**WAITS, "rows": 325} for i in range(4)} | {(1, i): {**IDLES, "rows": 100} for i in range(1, 4)}
    tasks[1, 0] = {**WORKS, "rows": 1000}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'sums[0]'"
    assert finding.cause.name == "data_skew"
    assert finding.remedy.gain == pytest.approx(1000 / 325)


def test_a_subtask_that_catches_up_is_not_skew() -> None:
    """After a stall it takes the rows that waited for it, while its peers get only what comes."""
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, {**WAITS, "rows": 200}), (1, 0): {**IDLES, "rows": 100}, (1, 1): {**WORKS, "rows": 1000}}
    found = diagnose(topology, snapshots(topology, tasks))
    assert "data_skew" not in [finding.cause.name for finding in found]


@pytest.mark.parametrize("count", range(10, 18))
def test_skew_is_found_although_a_batch_takes_longer_than_the_window(count: int) -> None:
    """The hot subtask takes a batch every four seconds, so a window of three seconds may have none of its rows."""
    topology = line("numbers", "sums", "out")
    tasks = {(0, i): WAITS for i in range(2)} | {(1, 0): {**IDLES, "rows": 10, "batches": 5, "busy_s": 0.1}}
    tasks[1, 1] = {**WORKS, "rows": 0}
    taken = snapshots(topology, tasks, count=count)
    for second, snapshot in enumerate(taken):
        (row,) = (row for row in snapshot.reports[0]["operators"] if row["name"] == "sums" and row["subtask"] == 1)
        row |= {"rows_in": 400 * (second // 4), "batches_in": second // 4}
    (finding,) = diagnose(topology, taken)
    assert (finding.place, finding.cause.name) == ("'sums[1]'", "data_skew")
    assert finding.cause.evidence["times_peers"] > 5


def test_a_hot_subtask_is_skew_although_its_peer_is_busy_too() -> None:
    """The peer keeps up, since it takes many batches. The hot subtask takes all rows that wait as one batch."""
    topology = line("numbers", "sums", "out")
    tasks = {(0, i): {**IDLES, "rows": 550} for i in range(2)}
    tasks |= {(1, 0): {**WORKS, "busy_s": 0.94, "idle_s": 0.06, "rows": 100, "batches": 20}}
    tasks |= {(1, 1): {**WORKS, "rows": 1000, "batches": 0.5}}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'sums[1]'"
    assert finding.cause.name == "data_skew"


def test_of_two_subtasks_with_more_rows_than_they_can_take_the_one_with_most_is_hot() -> None:
    topology = line("numbers", "sums", "out", parallelism=3)
    tasks = {(0, i): {**WAITS, "rows": 400} for i in range(3)} | {(1, 0): IDLES | {"rows": 0}}
    tasks |= {(1, 1): {**WORKS, "rows": 900}, (1, 2): {**WORKS, "rows": 300}}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert (finding.place, finding.cause.name) == ("'sums[1]'", "data_skew")
    assert finding.cause.evidence["share_of_rows"] == pytest.approx(0.75)
    tasks[1, 2] = {**WORKS, "rows": 600}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'sums[1, 2]'"


@pytest.mark.parametrize(("queued", "place"), [(9000, "'sums[1]'"), (1000, "'sums'"), (None, "'sums'")])
def test_if_all_subtasks_are_busy_the_bytes_that_come_show_the_hot_one(queued: int | None, place: str) -> None:
    """Early in a stall, both take what they can. One of them soon has no more rows."""
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, {**IDLES, "rows": 500}), **both(1, {**WORKS, "rows": 100})}
    places = [("numbers -> sums", producer, consumer) for producer in range(2) for consumer in range(2)]
    made = snapshots(topology, tasks, channels={each: {"bytes_sent": 1000} for each in places})
    for second, snapshot in enumerate(made):
        growths = [queued if consumer else 1000 for _, _, consumer in places]
        snapshot.reports[0]["channels"]["queued_bytes"] = [each and each * second for each in growths]
    (finding,) = diagnose(topology, made)
    assert (finding.place, finding.cause.name == "data_skew") == (place, place == "'sums[1]'")


def test_a_subtask_that_takes_all_rows_in_long_batches_is_slow() -> None:
    topology = line("numbers", "sums", "out")
    tasks = {(0, i): {**IDLES, "rows": 500} for i in range(2)}
    tasks |= {(1, 0): {**IDLES, "rows": 500, "batches": 20}, (1, 1): {**WORKS, "rows": 500, "batches": 0.5}}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'sums[1]'"
    assert finding.cause.name == "slow_instance"


@pytest.mark.parametrize("does", [{"rows": 500, "batches": 2}, {"rows": 500, "busy_s": 0.9, "idle_s": 0.1}])
def test_a_busy_subtask_that_takes_all_rows_in_short_batches_keeps_up(does: Does) -> None:
    topology = line("numbers", "sums", "out")
    tasks = {(0, i): {**IDLES, "rows": 500} for i in range(2)}
    tasks |= {(1, 0): {**IDLES, "rows": 500, "batches": 20}, (1, 1): {**WORKS, **does}}
    assert diagnose(topology, snapshots(topology, tasks)) == []


@pytest.mark.parametrize(("snapshot", "causes"), [(0.9, ["checkpoint"]), (0.1, [])])
def test_a_subtask_that_takes_its_state_all_the_time_is_slow_before_its_queue_is_full(
    snapshot: float, causes: list[str]
) -> None:
    topology = line("numbers", "sums", "out")
    tasks = {(vertex, i): {**IDLES, "rows": 500} for vertex in range(2) for i in range(2)}
    tasks[1, 1] = {**WORKS, "rows": 500, "batches": 2, "snapshot_s": snapshot, "in_s": 1 - snapshot, "cpu_s": 0.1}
    assert [each.cause.name for each in diagnose(topology, snapshots(topology, tasks))] == causes


@pytest.mark.parametrize(("rows", "cause"), [(10, "slow_instance"), (600, "out_of_cpu")])
def test_the_wait_for_a_processor_is_no_cause_if_it_explains_a_small_part(rows: int, cause: str) -> None:
    topology = line("numbers", "sums", "out", parallelism=4)
    tasks = {(0, i): WAITS for i in range(4)} | {(1, i): IDLES for i in range(4)}
    tasks[1, 2] = {**WORKS, "rows": rows, "cpu_s": 0.7, "run_delay_s": 0.3}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.cause.name == cause


def test_one_subtask_that_needs_longer_for_a_row_is_a_slow_instance() -> None:
    topology = line("numbers", "sums", "out", parallelism=4)
    tasks = {(0, i): WAITS for i in range(4)} | {(1, i): IDLES for i in range(4)}
    tasks[1, 2] = WORKS
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'sums[2]'"
    assert finding.cause.name == "slow_instance"


def test_two_slow_vertices_are_both_found_and_the_one_with_less_room_comes_first() -> None:
    topology = line("numbers", "first", "second", "out")
    tasks = {**both(0, WAITS), **both(1, WORKS), **both(2, {**WORKS, "busy_s": 0.9, "soft_backpressured_s": 0.0})}
    tasks = {**tasks, **both(1, {"busy_s": 0.86, "soft_backpressured_s": 0.14, "rows": 100, "cpu_s": 0.86})}
    places = [finding.place for finding in diagnose(topology, snapshots(topology, tasks))]
    assert places == ["'second'", "'first'"]


def test_producers_that_wait_for_idle_consumers_wait_for_the_exchange() -> None:
    topology = line("numbers", "out")
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, IDLES)}))
    assert finding.place == "the exchange 'numbers -> out'"
    assert finding.cause.name == "exchange"


def test_the_sink_of_a_chain_is_the_one_that_waits_for_the_driver() -> None:
    """It is not busy; once the function before it was named."""
    topology = line("numbers", "filled -> out")
    writes = {"hard_backpressured_s": 0.9, "busy_s": 0.1, "in": "filled", "rows": 100}
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, writes)}))
    assert (finding.cause.name, finding.place, finding.operator) == ("slow_driver", "'out'", "out")


def test_a_sink_that_waits_within_a_batch_waits_for_the_driver() -> None:
    topology = line("numbers", "out")
    waits = {"hard_backpressured_s": 0.95, "busy_s": 0.05, "rows": 10}
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, waits)}))
    assert finding.cause.name == "slow_driver"


def test_a_source_that_waits_for_its_fixed_rate_is_the_limit() -> None:
    plain = line("numbers", "sums -> out")
    source = replace(plain.vertices[0].operators[0], static_throttle="FixedRate(rows_per_s=10)")
    topology = replace(plain, vertices=(replace(plain.vertices[0], operators=(source,)), plain.vertices[1]))
    throttled = both(0, {"throttle_wait_s": 0.9, "busy_s": 0.1, "rows": 10})
    (finding,) = diagnose(topology, snapshots(topology, {**throttled, **both(1, {"busy_s": 0.5, "rows": 100})}))
    assert finding.cause.name == "throttle"
    assert finding.place == "'numbers'"
    assert finding.remedy.gain == pytest.approx(2.0), "then the sums have no time left"
    assert finding.sentence == (
        "'sums' waits for 'numbers': its throttle FixedRate(rows_per_s=10) lets 20 rows/s through, and holds it back "
        "90% of the time; raise its rate, which would carry 2.0 times as many rows (then 'sums -> out' is the limit), "
        "or leave the throttle out"
    )
    assert diagnose(plain, snapshots(plain, throttled)) == [], "a throttle that follows the job is no cause"


@pytest.mark.parametrize(
    ("task", "machine", "cause"),
    [
        ({}, {"collection_s": 0.4}, "garbage_collection"),
        ({"cpu_s": 0.2}, {"collection_s": 0.4}, "garbage_collection"),
        ({"cpu_s": 0.0}, {"collection_s": 0.3}, "waiting_function"),
        ({"run_delay_s": 0.5, "cpu_s": 0.5}, {"throttled_s": 0.5}, "processor_quota"),
        ({"run_delay_s": 0.5, "cpu_s": 0.5}, {"steal_s": 0.5}, "stolen_processor"),
        ({"run_delay_s": 0.5, "cpu_s": 0.5}, {"machine_cpu_s": 8.0, "cpu_s": 2.0}, "machine_taken"),
        ({"run_delay_s": 0.5, "cpu_s": 0.5}, {"machine_cpu_s": 8.0, "cpu_s": 8.0}, "out_of_cpu"),
        ({"run_delay_s": 0.5, "cpu_s": 0.5}, {"machine_cpu_s": 8.0, "cpu_s": 6.0}, "out_of_cpu"),
        ({"cpu_s": 0.1}, {"io_pressure_s": 0.6, "disk_written_bytes": 1e8}, "disk"),
        ({"cpu_s": 0.1, "disk_wait_s": 0.6}, {"disk_written_bytes": 1e4}, "disk"),
        ({"cpu_s": 0.1, "disk_wait_s": 0.0}, {"io_pressure_s": 0.6, "disk_written_bytes": 1e8}, "waiting_function"),
        ({"cpu_s": 0.1}, {"io_pressure_s": 0.6}, "waiting_function"),
        ({"cpu_s": 0.5}, {"lock_wait_s": 0.04}, "interpreter_lock"),
        ({"interpreter_wait_s": 0.6, "cpu_s": 0.35}, {}, "interpreter_lock"),
        ({"interpreter_wait_s": 0.2, "cpu_s": 0.75}, {}, "slow_function"),
        ({"cpu_s": 0.5, "at_lock_s": 0.8, "running_s": 0.1}, {}, "interpreter_lock"),
        ({"cpu_s": 0.5, "at_lock_s": 0.4, "running_s": 0.1}, {}, "slow_function"),
        ({"cpu_s": 0.2, "at_lock_s": 0.1, "running_s": 0.1}, {}, "waiting_function"),
        ({"snapshot_s": 0.7, "in_s": 0.1}, {}, "checkpoint"),
        ({"output_s": 0.7, "in_s": 0.1}, {}, "serialisation"),
        ({"input_s": 0.7, "in_s": 0.1}, {}, "deserialisation"),
        ({}, {}, "slow_function"),
    ],
)
def test_each_cause_by_its_evidence(task: dict[str, float], machine: dict[str, float], cause: str) -> None:
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, WAITS), **both(1, {**WORKS, **task}), **both(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks, machine=machine))
    assert finding.cause.name == cause


def test_a_task_that_sleeps_beside_busy_tasks_does_not_wait_for_the_interpreter_lock() -> None:
    """A task that waits for the lock still gets its turns, and so about its share of the process's processor time."""
    topology = line("numbers", "early", "late")
    works, sleeps = {**WORKS, "cpu_s": 0.45, "busy_s": 1.0}, {"busy_s": 1.0, "cpu_s": 0.01, "rows": 10, "batches": 1}
    tasks = {**both(0, {**WAITS, "cpu_s": 0.05}), **both(1, {**works, "soft_backpressured_s": 0.0}), **both(2, sleeps)}
    findings = diagnose(topology, snapshots(topology, tasks, machine={"lock_wait_s": 0.04}))
    causes = {finding.place: finding.cause.name for finding in findings}
    assert causes["'late'"] == "slow_sink"


def test_a_taskmanager_whose_report_is_late_leaves_the_others_their_numbers() -> None:
    """Two snapshots may have the same report of it. Its tasks are then unknown, and those of the next one are not."""
    topology = line("numbers", "sums", "out")
    made = snapshots(topology, {**both(0, WAITS), **both(1, WORKS), **both(2, IDLES)})
    late = made[0].reports[0]
    made = [replace(each, reports=(late, each.reports[0])) for each in made]
    (finding,) = diagnose(topology, made)
    assert finding.place == "'sums'"


@pytest.mark.parametrize(
    "unknown", ["run_delay_s", "collection_s", "machine_cpu_s", "cores", "lock_wait_s", "io_pressure_s", "cpu_s"]
)
def test_what_the_machine_does_not_say_is_no_cause(unknown: str) -> None:
    topology = line("numbers", "sums", "out")
    made = snapshots(topology, {**both(0, WAITS), **both(1, WORKS), **both(2, IDLES)})
    for snapshot in made:
        for row in (snapshot.reports[0]["machine"], *snapshot.reports[0]["tasks"]):
            if unknown in row:
                row[unknown] = None
    (finding,) = diagnose(topology, made)
    assert finding.cause.name == "slow_function"
    assert finding.remedy.gain == pytest.approx(4.0)
    condition = " if processors are free" if unknown in ("machine_cpu_s", "cores", "cpu_s") else ""
    assert finding.remedy.text == f"8 subtasks would carry 4.0 times as many rows{condition}"


def test_no_free_processor_no_gain() -> None:
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, WAITS), **both(1, WORKS), **both(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks, machine={"cores": 2, "machine_cpu_s": 2.0}))
    assert finding.remedy.gain == pytest.approx(1.0)
    assert "more subtasks gain nothing" in finding.sentence


def test_free_processors_limit_the_gain_of_work_and_not_of_waiting() -> None:
    topology = line("numbers", "sums", "out")
    machine = {"cores": 4, "machine_cpu_s": 2.4}
    works = {**both(0, WAITS), **both(1, WORKS), **both(2, IDLES)}
    sleeps = {**works, **both(1, SLEEPS)}
    (working,) = diagnose(topology, snapshots(topology, works, machine=machine))
    (sleeping,) = diagnose(topology, snapshots(topology, sleeps, machine=machine))
    assert working.remedy.gain == pytest.approx((2.2 + 1.6) / 2.2)
    assert sleeping.remedy.gain == pytest.approx(4)
    assert "8 subtasks would carry 4.0 times as many rows" in sleeping.sentence
    assert not sleeping.remedy.at_least, "more than eight subtasks are another remedy"


def test_a_gain_without_a_known_limit_is_at_least_the_largest_that_is_reported() -> None:
    topology = line("numbers", "sums", "out", parallelism=5)

    def diagnosed(hot: int) -> Finding:
        """`hot` are the rows for one of five subtasks; 100 rows come for each of the others."""
        tasks = {(vertex, i): does for vertex, does in ((1, IDLES), (2, IDLES)) for i in range(5)}
        tasks |= {(0, i): {**WAITS, "rows": (hot + 400) / 5} for i in range(5)}
        (finding,) = diagnose(topology, snapshots(topology, {**tasks, (1, 0): {**WORKS, "rows": hot}}))
        return finding

    finding = diagnosed(5000)
    assert finding.cause.name == "data_skew"
    assert finding.sentence.endswith("spread its hot keys, which would carry at least 4.0 times as many rows")
    assert (finding.remedy.gain, finding.remedy.at_least) == (4.0, True)
    finding = diagnosed(800)
    assert finding.cause.name == "data_skew"
    assert "would carry 3.3 times as many rows" in finding.sentence
    assert not finding.remedy.at_least


@pytest.mark.parametrize(
    ("waits", "text"),
    [(0.5, "would carry up to 2.0 times as many rows"), (0.9, "could carry 4.0 times as many rows or more")],
)
def test_a_remedy_for_a_part_of_the_waits_promises_no_least_gain(waits: float, text: str) -> None:
    topology = line("numbers", "sums", "out")
    hot = {**WORKS, "cpu_s": 0.05, "disk_wait_s": waits}
    made = snapshots(
        topology, {**both(0, WAITS), **both(1, hot), **both(2, IDLES)}, machine={"disk_written_bytes": 1e4}
    )
    (finding,) = diagnose(topology, made)
    assert finding.cause.name == "disk"
    assert f"which {text}" in finding.sentence
    assert not finding.remedy.at_least


@pytest.mark.parametrize(
    "tasks",
    [
        {},
        {**both(0, IDLES), **both(1, IDLES)},
        {**both(0, WORKS), **both(1, {**WORKS, "idle_s": 0.1, "busy_s": 0.9})},
        {**both(0, {**IDLES, "soft_backpressured_s": 0.08}), **both(1, WORKS)},
    ],
    ids=["nothing flows", "all wait for input", "both work", "hardly blocked"],
)
def test_nobody_is_blamed_in_a_healthy_job(tasks: Tasks) -> None:
    topology = line("numbers", "out")
    assert diagnose(topology, snapshots(topology, tasks)) == []


def test_a_job_is_behind_while_the_lag_of_its_source_grows() -> None:
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, {**WAITS, "lag_s": 0.5}), **both(1, SLEEPS), **both(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks, count=16))
    assert finding.severity is Severity.BEHIND
    assert finding.remedy.gain == pytest.approx(2.0)
    assert finding.remedy.limit == "the sources keep their pace"


@pytest.mark.parametrize(
    ("reads", "is_behind"),
    [
        ({"unread": 60}, True),
        ({"unread": 3}, False),
        ({"latency_s": 0.5}, True),
        ({"latency_s": 0.01}, False),
        ({"watermark": 1_000_000_000, "event_time": 0.5}, True),
        ({"watermark": 1_000_000_000, "event_time": 1.0}, False),
        ({"watermark": 1_000_000_000, "event_time": 0.5, "is_idle": True}, False),
        ({"watermark": 1_000_000_000, "event_time": 0.5, "rows": 0}, False),
        ({"watermark": -100_000_000_000, "event_time": 0.5}, False),
    ],
    ids=[
        "unread messages grow", "hardly any unread messages", "markers take longer and longer", "markers hardly wait",
        "event time is slower than the clock", "event time goes by the clock", "the source is idle", "no row comes",
        "the rows are of another day",
    ],
)  # fmt: skip
def test_a_job_is_behind_while_any_lag_grows(reads: dict[str, Any], is_behind: bool) -> None:
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, {**WAITS, **reads}), **both(1, SLEEPS), **both(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks, count=16))
    assert finding.severity is (Severity.BEHIND if is_behind else Severity.LIMIT)


def test_a_job_without_a_row_for_ten_seconds_is_stuck() -> None:
    topology = line("numbers", "sums", "out")
    still = {**both(0, {**WAITS, "rows": 0}), **both(1, {**SLEEPS, "rows": 0, "batches": 0}), **both(2, {"idle_s": 1})}
    (finding,) = diagnose(topology, snapshots(topology, still, count=16))
    assert finding.severity is Severity.STUCK
    (finding,) = diagnose(topology, snapshots(topology, still, count=9))
    assert finding.severity is Severity.LIMIT


def test_windows_end_at_a_new_attempt() -> None:
    topology = line("numbers", "out")
    made = snapshots(topology, {}, count=7) + snapshots(topology, {}, count=4, attempt=1, begin=1007.0)
    windows = windows_of(topology, made)
    assert [(window.begin, window.end) for window in windows] == [(1007.0, 1010.0)]


def test_ended_tasks_do_not_count() -> None:
    topology = line("numbers", "sums", "out")
    tasks = {**both(0, WAITS), **both(1, SLEEPS), **both(2, IDLES)}
    tasks[1, 1] = {"ended": True}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.place == "'sums'"


def test_a_job_is_behind_while_a_queue_grows_before_a_busy_task() -> None:
    topology = line("numbers", "sums", "out")
    paced = {"idle_s": 0.9, "busy_s": 0.1, "lag_s": 0.0, "rows": 300}
    tasks = {**both(0, paced), **both(1, SLEEPS), **both(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks, count=16))
    assert finding.severity is Severity.BEHIND
    assert finding.operator == "sums"
    assert finding.remedy.gain == pytest.approx(3)
    assert finding.sentence.startswith("rows queue for 'sums': ")


def test_a_job_is_behind_while_a_queue_grows_before_a_victim() -> None:
    """The queue before the slow vertex is full, and its producer waits. The source does not yet."""
    topology = line("numbers", "ids", "sums", "out")
    paced = {"idle_s": 0.9, "busy_s": 0.1, "lag_s": 0.0, "rows": 300}
    tasks = {**both(0, paced), **both(1, {**WAITS, "idle_s": 0.0}), **both(2, SLEEPS), **both(3, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks, count=16))
    assert finding.operator == "sums"
    assert finding.severity is Severity.BEHIND


def test_early_in_a_stall_a_source_falls_behind_while_queues_still_grow() -> None:
    topology = line("numbers", "ids", "sums", "out", parallelism=1)
    tasks = {
        (0, 0): {**WAITS, "lag_s": 0.2, "rows": 240},  # it should have read 300 rows in a second
        (1, 0): {**WAITS, "rows": 150},
        (2, 0): {**SLEEPS, "rows": 100},
        (3, 0): IDLES,
    }
    (finding,) = diagnose(topology, snapshots(topology, tasks, count=16))
    assert finding.operator == "sums"
    assert finding.remedy.gain == pytest.approx(3)
    assert finding.remedy.limit == "the sources keep their pace"


def test_a_slow_lookup_is_named() -> None:
    topology = line("numbers", "ids", "out")
    ids = replace(topology.vertices[1], operators=(replace(topology.vertices[1].operators[0], kind="lookup"),))
    topology = replace(topology, vertices=(topology.vertices[0], ids, topology.vertices[2]))
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, SLEEPS), **both(2, IDLES)}))
    assert finding.cause.name == "slow_lookup"
    assert finding.sentence.startswith("'numbers' waits for 'ids': its lookup takes 0.33 s a batch")
    asks = {**SLEEPS, "lookup_wait_s": 0.97}
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, asks), **both(2, IDLES)}))
    assert "a batch, and it waits for the lookup's answers for 97% of the time" in finding.sentence
    assert finding.cause.evidence["lookup_wait"] == pytest.approx(0.97)


def test_more_subtasks_are_no_remedy_for_a_slow_disk() -> None:
    topology = line("numbers", "sums", "out")
    waits = {**WORKS, "cpu_s": 0.1, "disk_wait_s": 0.5}
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, waits), **both(2, IDLES)}))
    assert finding.cause.name == "disk"
    assert finding.remedy.gain == pytest.approx(2.0)
    assert "subtasks" not in finding.remedy.text


#: A source that is busy and off the processor, for 19 ms a batch, while its consumers idle.
STARVES = {"busy_s": 0.95, "cpu_s": 0.02, "rows": 100, "batches": 50}
STARVED = {**IDLES, "soft_backpressured_s": 0.2, "idle_s": 0.6}
LONG_WAITS = {"lock_wait_s": 0.4}


def test_a_task_that_waits_for_the_interpreter_lock_comes_after_the_one_that_holds_it() -> None:
    topology = line("numbers", "first", "second")
    tasks = {**both(0, STARVES), **both(1, STARVED), **both(2, WORKS)}
    assert [each.operator for each in diagnose(topology, snapshots(topology, tasks))] == ["numbers", "second"]
    found = diagnose(topology, snapshots(topology, tasks, machine=LONG_WAITS))
    assert [each.operator for each in found] == ["second", "numbers"]


@pytest.mark.parametrize(
    ("at_lock", "machine", "first"), [(0.9, {}, "second"), (0.1, LONG_WAITS, "numbers"), (0.1, {}, "numbers")]
)
def test_samples_tell_a_task_that_waits_for_the_lock_from_one_that_sleeps(
    at_lock: float, machine: dict[str, float], first: str
) -> None:
    topology = line("numbers", "first", "second")
    source = {**STARVES, "at_lock_s": at_lock, "running_s": 0.0}
    tasks = {**both(0, source), **both(1, STARVED), **both(2, WORKS)}
    found = diagnose(topology, snapshots(topology, tasks, machine=machine))
    assert [each.operator for each in found] == [first, {"second": "numbers", "numbers": "second"}[first]]


def test_a_subtask_that_works_longer_than_its_peers_is_slow_itself_though_it_waits_for_the_lock() -> None:
    topology = line("numbers", "sums", "out")
    slow = {"busy_s": 1.0, "cpu_s": 0.3, "rows": 50, "batches": 1, "at_lock_s": 0.95, "running_s": 0.0}
    peer = {"busy_s": 0.4, "cpu_s": 0.05, "rows": 100, "batches": 10, "at_lock_s": 0.4, "running_s": 0.0}
    tasks = {**both(0, WAITS), (1, 0): slow, (1, 1): peer, **both(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert (finding.place, finding.cause.name) == ("'sums[0]'", "slow_instance")


def test_more_processes_gain_the_waits_of_all_tasks() -> None:
    """The source waits for the lock, too. In a process of its own it is no limit."""
    topology = line("numbers", "sums", "out")
    source = {**WAITS, "soft_backpressured_s": 0.1, "busy_s": 0.9, "cpu_s": 0.1, "at_lock_s": 0.8, "running_s": 0.0}
    works = {**WORKS, "busy_s": 1.0, "cpu_s": 0.4, "at_lock_s": 0.9, "running_s": 0.0}
    tasks = {**both(0, source), **both(1, works), **both(2, IDLES)}
    findings = diagnose(topology, snapshots(topology, tasks, machine={"cores": 8, "machine_cpu_s": 1.2}))
    (sums,) = (each for each in findings if each.operator == "sums")
    assert sums.remedy.gain == pytest.approx(1 / (1.0 - 0.5))
    assert "run the job in more processes (hg.LocalDeployment)" in sums.sentence
    assert "2.0 times as many rows (then its operators are busy)" in sums.sentence


def test_the_task_that_holds_the_interpreter_lock_is_named_even_if_none_waits_for_its_rows() -> None:
    topology = line("numbers", "first", "second")
    computes = {"busy_s": 0.7, "cpu_s": 0.5, "idle_s": 0.3, "rows": 100, "batches": 20}
    tasks = {**both(0, STARVES), **both(1, STARVED), **both(2, computes)}
    assert [each.operator for each in diagnose(topology, snapshots(topology, tasks))] == ["numbers"]
    found = diagnose(topology, snapshots(topology, tasks, machine=LONG_WAITS))
    assert [each.operator for each in found] == ["second", "numbers"]
    assert found[0].cause.name == "interpreter_lock"


def test_a_source_that_waits_for_the_lock_beside_consumers_that_hold_it_has_a_holder_to_blame() -> None:
    """Each batch of the consumer is short, and as many rows come as it takes: nothing else says that it is slow."""
    topology = line("numbers", "sums")
    computes = {"busy_s": 1.0, "cpu_s": 0.5, "rows": 100, "batches": 20}
    tasks = {**both(0, {**STARVES, "busy_s": 1.0}), **both(1, computes)}
    assert diagnose(topology, snapshots(topology, tasks)) == []
    found = diagnose(topology, snapshots(topology, tasks, machine=LONG_WAITS))
    assert [each.operator for each in found] == ["sums", "numbers"]
    assert found[0].cause.name == "interpreter_lock"
    never = diagnose(topology, snapshots(topology, tasks, machine={"lock_wait_s": 0.0, "lock_probes": 0.0}))
    assert [each.operator for each in never] == ["sums", "numbers"], "no thread that asked has got the lock"


def test_a_task_that_has_ended_does_not_hold_the_lock_any_more() -> None:
    """It has computed in the window, more than any task that still runs."""
    topology = line("numbers", "sums", "out", parallelism=1)
    waits = {"busy_s": 1.0, "cpu_s": 0.2, "rows": 200, "batches": 2, "at_lock_s": 0.9, "running_s": 0.0}
    source = {**WORKS, "rows": 1000, "at_lock_s": 0.0, "running_s": 0.0}
    made = snapshots(topology, {(0, 0): source, (1, 0): waits})
    assert diagnose(topology, made)
    made[-1].reports[0]["tasks"][0]["ended"] = True
    assert {each.operator for each in diagnose(topology, made)} <= {"sums"}


def test_consumers_that_only_wait_for_the_lock_neither_explain_their_source_nor_limit_its_gain() -> None:
    topology = line("numbers -> first", "sums")
    litters = {"busy_s": 1.0, "cpu_s": 0.5, "rows": 100, "batches": 20, "in": "first"}
    waits = {"busy_s": 0.8, "cpu_s": 0.01, "rows": 100, "batches": 20}
    (finding,) = diagnose(
        topology,
        snapshots(topology, {**both(0, litters), **both(1, waits)}, machine={**LONG_WAITS, "collection_s": 0.9}),
    )
    assert (finding.operator, finding.cause.name) == ("first", "garbage_collection")
    assert (finding.remedy.gain, finding.remedy.limit) == (4.0, "")
    assert "would carry at least 4.0 times as many rows" in finding.sentence


def test_the_only_task_that_computes_is_slow_by_itself() -> None:
    topology = line("numbers", "first", "second")
    alone = {(2, 0): {**WORKS, "cpu_s": 0.7}, (2, 1): {**IDLES, "rows": 100}}
    tasks = {**both(0, {**WAITS, "cpu_s": 0.15}), **both(1, {**WAITS, "cpu_s": 0.15}), **alone}
    (finding,) = diagnose(topology, snapshots(topology, tasks, machine=LONG_WAITS))
    assert (finding.place, finding.cause.name) == ("'second[0]'", "slow_instance")


def test_times_of_a_task_are_shares_of_the_time_between_their_readings() -> None:
    """They were read long before the report was complete."""
    topology = line("numbers", "sums", "out")
    early = {**WORKS, "busy_s": 0.8, "cpu_s": 0.8, "idle_s": 0.0}
    (finding,) = diagnose(topology, snapshots(topology, {**both(0, WAITS), **both(1, early), **both(2, IDLES)}))
    assert finding.operator == "sums"


def test_a_window_is_as_near_to_three_seconds_as_the_snapshots_allow() -> None:
    topology = line("numbers", "sums", "out")
    every = snapshots(topology, both(1, WORKS), count=20)

    def lengths(*seconds: int) -> list[float]:
        return [window.seconds for window in windows_of(topology, [every[each] for each in seconds])]

    assert lengths(0, 1, 2, 3, 4, 5, 6) == [3.0, 3.0]
    assert lengths(0, 1, 4, 9, 11) == [3.0, 5.0, 2.0]
    assert lengths(0, 2) == [], "the attempt is too young"
