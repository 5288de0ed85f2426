"""`OperatorHarness`: one operator alone returns the same rows as in a job."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
import headgate.operators
from headgate import testing
from headgate.operators.operator import Operator
from headgate.runtime.running_operator import current_operator
from headgate.testing import OperatorHarness, PipelineHarness, at
from headgate.testing.set_clock import reads_clock

ROWS = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
SAID = pa.schema({"k": pa.string(), "said": pa.string()})
NOTED = pa.schema({"k": pa.string(), "n": pa.int64()})


class Clerk(hg.KeyedProcessFunction):
    """Uses state, timers of both kinds and a side output; its rows show everything that its context holds."""

    total = hg.ValueState(pa.int64())
    brief = hg.ListState(pa.int64(), ttl="30 s")

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        self.total.update(self.total.value(0) + row["n"])
        self.brief.add(row["n"])
        if row["n"] % 3 == 0:
            ctx.register_event_time_timer(row["at"])
        if row["n"] % 3 == 1:
            ctx.register_processing_time_timer(ctx.processing_time + row["n"] * 1_000_000)
        if row["n"] % 3 == 2:
            yield hg.SideOutput("noted", {"k": row["k"], "n": row["n"]})

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        context = time, ctx.time_domain, ctx.watermark, ctx.processing_time, self.total.value(), self.brief.get()
        yield {"k": ctx.key[0], "said": f"{context}"}


def clerk(rows: hg.DataStream) -> hg.DataStream:
    return rows.key_by("k").process(Clerk(), schema=SAID, side_outputs={"noted": NOTED})


def in_a_job(env: hg.StreamEnvironment) -> dict[str, hg.DataStream]:
    said = clerk(env.from_source(hg.sources.csv("in/", schema=ROWS), watermark=hg.Watermark("at")))
    return {"said": said, "noted": said.side_output("noted")}


def by_key(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows by key, in their order."""
    rows_by_key: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        rows_by_key[row["k"]].append(row)
    return rows_by_key


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(6))
def test_the_harness_returns_the_rows_that_a_job_returns(seed: int) -> None:
    chance = random.Random(seed)
    clock, event = 0, 0
    operator = OperatorHarness(clerk, schema=ROWS, event_time="at", parallelism=chance.randint(1, 3))
    with operator, PipelineHarness(in_a_job, parallelism=chance.randint(1, 3)) as job:
        for _ in range(25):
            match chance.choice(["row", "row", "row", "watermark", "clock", "restart"]):
                case "row":
                    row = {
                        "k": chance.choice("abc"),
                        "n": chance.randint(0, 12),
                        "at": at(event + chance.randint(0, 9)),
                    }
                    said = operator.push(row)
                    job.push(row)
                case "watermark":
                    event += chance.randint(0, 9)
                    said = operator.advance_watermark(at(event))
                    job.advance_watermark(at(event))
                case "clock":
                    clock += chance.randint(0, 20)
                    said = operator.advance_clock(at(clock))
                    job.advance_clock(at(clock))
                case "restart":
                    said = operator.restart(chance.choice([None, 1, 2, 3]))
                    job.restart(chance.choice([None, 1, 2, 3]))
            assert by_key(said) == by_key(job.take("said"))
            assert operator.take("noted") == job.take("noted")
        last = operator.end()
        job.end()
        assert by_key(last) == by_key(job.take("said"))


def where(rows: hg.DataStream) -> hg.DataStream:
    """Add the subtask that processes the rows."""
    return rows.map(lambda row: {"k": row["k"], "said": current_operator()}, schema=SAID)


PARTITIONINGS: dict[str, Any] = {
    "of a chain": lambda rows: where(rows),
    "forward": lambda rows: where(rows.forward()),
    "rebalance": lambda rows: where(rows.rebalance()),
    "load-aware rebalance": lambda rows: where(rows.rebalance(load_aware=True)),
    "rescale": lambda rows: where(rows.rescale()),
    "rescale to more": lambda rows: where(rows.rescale()).set_parallelism(5),
    "rescale to fewer": lambda rows: where(rows.rescale()).set_parallelism(2),
    "to another parallelism": lambda rows: where(rows).set_parallelism(2),
    "shuffle": lambda rows: where(rows.shuffle()),
    "broadcast": lambda rows: where(rows.broadcast()),
    "to one": lambda rows: where(rows.to_one()),
    "by a function": lambda rows: where(rows.partition_by(lambda batch, n: pc.subtract(n - 1, batch["n"]))),
    "by key": lambda rows: where(rows.key_by("k")),
}


@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_a_row_goes_to_the_subtask_to_which_it_goes_in_a_job(partitioning: str) -> None:
    place = PARTITIONINGS[partitioning]
    steps = [[{"k": f"{step}{n}", "n": n} for n in range(2)] for step in range(8)]
    operator = OperatorHarness(place, schema=NOTED, parallelism=3)
    job = testing.run(lambda env: place(env.from_source(hg.sources.csv("in/", schema=NOTED))), steps, parallelism=3)
    testing.assert_same_rows([row for step in steps for row in operator.push(step)], job.rows)


def test_an_error_of_a_partitioning_function_names_the_source() -> None:
    operator = OperatorHarness(lambda rows: where(rows.partition_by(lambda batch, n: [0])), schema=NOTED)
    with pytest.raises(hg.UserFunctionError, match=r"\[0\]: partition_by: .* must return a NumPy or pyarrow array"):
        operator.push({"k": "a", "n": 1})


def test_an_overdue_timer_is_called_with_the_next_watermark_which_a_restart_brings() -> None:
    row = {"k": "a", "n": 3, "at": at(5)}
    with (
        OperatorHarness(clerk, schema=ROWS, event_time="at") as operator,
        PipelineHarness(in_a_job, parallelism=3) as job,
    ):
        operator.advance_watermark(at(10))
        job.advance_watermark(at(10))
        assert operator.push(row) == []
        job.push(row)
        assert job.take("said") == []
        job.restart(parallelism=2)
        assert operator.restart(parallelism=2) == job.take("said") != []


def test_windows_can_be_driven() -> None:
    def windows(rows: hg.DataStream) -> hg.DataStream:
        return rows.key_by("k").window(hg.tumble("10 s")).aggregate(n=hg.sum("n"))

    harness = OperatorHarness(windows, schema=ROWS, event_time="at", parallelism=2)
    harness.push([{"k": k, "n": n, "at": at(n)} for k in "ab" for n in (1, 2, 11)])
    first = [{"k": k, "window_start": at(0), "window_end": at(10), "n": 3} for k in "ab"]
    testing.assert_same_rows(harness.advance_watermark(at(10)), first)
    assert harness.push({"k": "a", "n": 1, "at": at(1)}) == []
    harness.restart(parallelism=1)
    assert harness.push({"k": "b", "n": 1, "at": at(1)}) == []  # event time did not move
    assert harness.late_rows == 2
    assert [row["n"] for row in harness.end()] == [11, 11]


def test_functions_on_batches_and_aggregates_can_be_driven() -> None:
    doubled = OperatorHarness(lambda rows: rows.with_columns(n="2 * n"), schema=NOTED)
    assert doubled.push([{"k": "a", "n": 1}, {"k": "b", "n": 2}]) == [{"k": "a", "n": 2}, {"k": "b", "n": 4}]
    table = pa.table({"k": ["a", "a"], "n": [1, 2]})
    totals = OperatorHarness(lambda rows: rows.key_by("k").aggregate(final=True, n=hg.sum("n")), schema=NOTED)
    assert totals.push(table) == []
    assert totals.end() == [{"k": "a", "n": 3}]


def test_a_function_is_opened_and_closed_once_in_each_subtask() -> None:
    calls: list[str] = []

    class Door(hg.KeyedProcessFunction):
        def open(self, ctx: hg.ProcessContext) -> None:
            calls.append(f"open {ctx.subtask} of {ctx.parallelism}")

        def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> None: ...

        def close(self) -> None:
            calls.append("close")

    def doors(rows: hg.DataStream) -> hg.DataStream:
        return rows.key_by("k").process(Door(), schema=SAID)

    with OperatorHarness(doors, schema=NOTED, parallelism=2) as harness:
        harness.restart(parallelism=1)
    assert calls == ["open 0 of 2", "open 1 of 2", "close", "close", "open 0 of 1", "close"]


class Faulty(hg.KeyedProcessFunction):
    """Raises in `open` or in `close` of the subtask `faulty`. `log` gets the subtasks that were closed."""

    def __init__(self, call: str, faulty: int, log: list[int]) -> None:
        self.call, self.faulty, self.log = call, faulty, log

    def open(self, ctx: hg.ProcessContext) -> None:
        self.subtask = ctx.subtask
        self.fail_in("open")

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        yield {"k": row["k"], "said": "yes"}

    def close(self) -> None:
        self.log.append(self.subtask)
        self.fail_in("close")

    def fail_in(self, call: str) -> None:
        if (call, self.subtask) == (self.call, self.faulty):
            raise ZeroDivisionError(f"in {call}")


def faulty(call: str, subtask: int, log: list[int]) -> OperatorHarness:
    def operator(rows: hg.DataStream) -> hg.DataStream:
        return rows.key_by("k").process(Faulty(call, subtask, log), schema=SAID)

    return OperatorHarness(operator, schema=NOTED, parallelism=3)


def test_an_error_in_open_closes_the_subtasks_that_are_open() -> None:
    closed: list[int] = []
    with pytest.raises(hg.UserFunctionError, match=r"\[1\].*ZeroDivisionError: in open"):
        faulty("open", 1, closed)
    assert 0 in closed


def test_an_error_in_close_closes_all_subtasks_and_the_harness() -> None:
    closed: list[int] = []
    harness = faulty("close", 1, closed)
    with pytest.raises(hg.UserFunctionError, match=r"\[1\].*ZeroDivisionError: in close"):
        harness.restart()
    assert sorted(closed) == [0, 1, 2]
    with pytest.raises(hg.ConfigError, match="is closed, by close.* or by an error in a restart: make a new harness"):
        harness.push({"k": "a", "n": 1})


def test_a_restart_that_is_refused_changes_nothing() -> None:
    plans = iter([Clerk(), None, Clerk()])

    def operator(rows: hg.DataStream) -> hg.DataStream:
        function = next(plans)
        return rows if function is None else rows.key_by("k").process(function, schema=SAID)

    row = {"k": "a", "n": 3, "at": at(5)}
    with OperatorHarness(operator, schema=ROWS, event_time="at") as harness:
        harness.push(row)
        with pytest.raises(hg.PlanError, match="restart: parallelism must be a whole number"):
            harness.restart(0)
        with pytest.raises(hg.PlanError, match="must add one operator"):
            harness.restart()
        harness.restart(2)
        assert harness.push(row) == []
        assert "6, [3, 3]" in harness.advance_watermark(at(9))[0]["said"]  # the state of both rows


@pytest.mark.parametrize(
    "step",
    [
        lambda harness: harness.push({"k": "a", "n": 1, "at": at(1)}),
        lambda harness: harness.advance_watermark(at(1)),
        lambda harness: harness.advance_clock(at(1)),
        lambda harness: harness.end(),
        lambda harness: harness.restart(),
        lambda harness: harness.restart(2),
    ],
)
def test_a_closed_harness_takes_no_step(step: Any) -> None:
    with OperatorHarness(clerk, schema=ROWS, event_time="at") as harness:
        harness.push({"k": "a", "n": 2, "at": at(1)})
    harness.close()
    with pytest.raises(hg.ConfigError, match="the harness is closed.*: make a new harness"):
        step(harness)
    assert harness.take("noted") == [{"k": "a", "n": 2}]
    assert harness.late_rows == 0


def test_an_error_of_a_function_names_the_operator() -> None:
    class Broken(hg.KeyedProcessFunction):
        def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> None:
            raise ZeroDivisionError("of the user")

    harness = OperatorHarness(lambda rows: rows.key_by("k").process(Broken(), schema=SAID).name("mine"), schema=NOTED)
    with pytest.raises(hg.UserFunctionError, match=r"mine\[0\]: .*ZeroDivisionError: of the user"):
        harness.push({"k": "a", "n": 1})


def test_a_lookup_remembers_answers_by_the_clock_of_the_test() -> None:
    calls = iter(range(10))
    answer = pa.schema({"call": pa.int64()})

    def asked(keys: pa.RecordBatch) -> list[dict[str, Any]]:
        call = next(calls)
        return [{"k": key, "call": call} for key in keys.column("k").to_pylist()]

    row = {"k": "a", "n": 1}
    with OperatorHarness(lambda rows: rows.lookup(asked, on="k", schema=answer, cache_ttl="1 h"), schema=NOTED) as one:
        assert [one.push(row)[0]["call"] for _ in range(2)] == [0, 0]
        one.advance_clock(at("3599 s"))
        assert one.push(row)[0]["call"] == 0
        one.advance_clock(at("1 h"))
        assert one.push(row)[0]["call"] == 1


def test_a_lookup_loads_its_file_again_by_the_clock_of_the_test(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"

    def looked_up(rows: hg.DataStream) -> hg.DataStream:
        return rows.lookup(file, on="n", refresh="1 h")

    file.write_text("n,name\n1,old\n")
    row = {"k": "a", "n": 1}
    with OperatorHarness(looked_up, schema=NOTED) as harness:
        file.write_text("n,name\n1,new\n")
        harness.advance_clock(at("3599 s"))
        assert harness.push(row)[0]["name"] == "old"
        harness.advance_clock(at("1 h"))
        assert harness.push(row)[0]["name"] == "new"


def operators() -> list[type[Operator]]:
    """Return all classes of operators in Headgate."""
    for module in pkgutil.walk_packages(headgate.operators.__path__, "headgate.operators."):
        importlib.import_module(module.name)
    found: list[type[Operator]] = [Operator]
    for kind in found:
        found += [each for each in kind.__subclasses__() if each.__module__.startswith("headgate.operators.")]
    return found


def test_every_operator_with_work_by_the_clock_reads_the_clock_of_the_test() -> None:
    with_work = {kind.__name__: kind for kind in operators() if kind.next_time is not Operator.next_time}
    assert {"ClockSessions", "Join", "KeyedProcess", "Lookup", "TopInClockWindows"} <= with_work.keys()
    assert {name for name, kind in with_work.items() if not reads_clock(kind)} == set()


@pytest.mark.parametrize(
    "operator",
    [
        lambda rows: rows,
        lambda rows: rows.key_by("k"),
        lambda rows: rows.select("k").select("k"),
        lambda rows: rows.union(rows),
        lambda rows: clerk(rows).side_output("noted"),
    ],
)
def test_a_function_that_adds_no_or_several_operators_is_refused(operator: Any) -> None:
    with pytest.raises(hg.PlanError, match="must add one operator to the stream; for several use Pipeline"):
        OperatorHarness(operator, schema=ROWS)


def test_wrong_arguments_and_calls_are_refused() -> None:
    with pytest.raises(hg.PlanError, match="`operator` must return a stream, not 7"):
        OperatorHarness(lambda rows: 7, schema=ROWS)  # type: ignore[arg-type,return-value]
    with pytest.raises(hg.PlanError, match=r"schema= must be a pyarrow.Schema of the input rows, .* not {}"):
        OperatorHarness(clerk, schema={})
    harness = OperatorHarness(lambda rows: rows.select("k"), schema=ROWS)
    with pytest.raises(hg.ConfigError, match="there is no event time; name its column"):
        harness.advance_watermark(at(1))
    with pytest.raises(hg.PlanError, match="there is no side output 'noted'; there are: none"):
        harness.take("noted")
