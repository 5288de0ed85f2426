"""`hg.testing.run` and `PipelineHarness`: the rows they return, their order, and their errors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate import testing
from headgate.testing import AdvanceClock, AdvanceWatermark, PipelineHarness, Restart, at

ROWS = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
SAID = pa.schema({"k": pa.string(), "said": pa.string()})


def row(k: str, n: int, seconds: float = 0.0) -> dict[str, Any]:
    return {"k": k, "n": n, "at": at(seconds)}


def read(env: hg.StreamEnvironment, name: str = "rows") -> hg.DataStream:
    return env.from_source(hg.sources.csv("in/*", schema=ROWS), watermark=hg.Watermark("at")).name(name)


def counts(env: hg.StreamEnvironment) -> hg.DataStream:
    return read(env).key_by("k").window(hg.tumble("10 s")).aggregate(n=hg.count()).select("k", "n")


def two_sources(env: hg.StreamEnvironment) -> hg.DataStream:
    union = read(env, "left").union(read(env, "right"))
    return union.key_by("k").window(hg.tumble("10 s")).aggregate(ns=hg.collect_list("n")).select("k", "ns")


# --- the rows that a test gives


def test_files_and_folders_of_the_pipeline_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline(env: hg.StreamEnvironment) -> None:
        read(env).sink_to(hg.sinks.parquet("out/"))

    monkeypatch.chdir(tmp_path)
    assert testing.run(pipeline, [row("a", 1)]).rows == [row("a", 1)]
    assert list(tmp_path.iterdir()) == []


def test_without_rows_a_pipeline_ends() -> None:
    assert testing.run(counts, []).rows == []


def test_a_table_is_one_batch_and_rows_are_batches_of_their_own() -> None:
    def sizes(env: hg.StreamEnvironment) -> hg.DataStream:
        size = pa.schema({"size": pa.int64()})
        return read(env).map_batches(lambda batch: pa.record_batch([[batch.num_rows]], schema=size), schema=size)

    table = pa.Table.from_pylist([row("a", n) for n in range(5)], schema=ROWS)
    result = testing.run(sizes, [row("a", 1), table, table.to_batches()[0], [row("a", 1)] * 2, table.to_pandas()])
    assert [each["size"] for each in result.rows] == [1, 5, 5, 2, 5]
    assert [each["size"] for each in testing.run(sizes, table).rows] == [5]


def test_a_restart_cuts_a_batch_before_its_row() -> None:
    def sizes(env: hg.StreamEnvironment) -> hg.DataStream:
        size = pa.schema({"size": pa.int64()})
        return read(env).map_batches(lambda batch: pa.record_batch([[batch.num_rows]], schema=size), schema=size)

    table = pa.Table.from_pylist([row("a", n) for n in range(5)], schema=ROWS)
    restarts = [Restart(4), Restart(2, parallelism=2), Restart(0), Restart(6)]
    result = testing.run(sizes, [table, row("a", 9)], restarts=restarts)
    assert [each["size"] for each in result.rows] == [2, 2, 1, 1]


def test_columns_that_a_row_lacks_are_null() -> None:
    assert testing.run(read, [{"at": at(1)}]).rows == [{"k": None, "n": None, "at": at(1)}]


def test_sources_are_given_in_turn_or_in_the_order_of_pairs() -> None:
    left, right = [row("a", 1), row("a", 2)], [row("a", 10), row("a", 20), row("a", 30)]

    def merged(env: hg.StreamEnvironment) -> hg.DataStream:
        return read(env, "left").union(read(env, "right")).to_one().select("n")

    in_turn = testing.run(merged, {"left": left, "right": right}, parallelism=2).rows
    assert [each["n"] for each in in_turn] == [1, 10, 2, 20, 30]
    pairs = [*(("right", each) for each in right), *(("left", each) for each in left)]
    assert [each["n"] for each in testing.run(merged, pairs).rows] == [10, 20, 30, 1, 2]


def test_a_window_waits_for_the_watermarks_of_all_sources() -> None:
    with PipelineHarness(two_sources, parallelism=2) as harness:
        harness.push(row("a", 1, 5), source="left")
        harness.push(row("a", 2, 6), source="right")
        harness.advance_watermark(at(10), source="left")
        assert harness.take() == []
        harness.advance_watermark(at(10), source="right")
        (fired,) = harness.take()
        assert sorted(fired["ns"]) == [1, 2]


def test_a_row_of_a_source_s_side_output() -> None:
    def pipeline(env: hg.StreamEnvironment) -> dict[str, hg.DataStream]:
        trips = env.from_source(hg.sources.json_lines("in/*", schema=ROWS))
        return {"good": trips, "bad": trips.side_output("bad").select("line", "error")}

    bad = {"file": "a.json", "offset": 0, "line": 7, "text": "[", "error": "no JSON"}
    result = testing.run(pipeline, [row("a", 1), hg.SideOutput("bad", bad)])
    assert result["good"] == [row("a", 1)]
    assert result["bad"] == [{"line": 7, "error": "no JSON"}]


# --- event time and the clock


def test_rows_do_not_move_the_watermark() -> None:
    with PipelineHarness(counts) as harness:
        harness.push(row("a", 1, 5))
        harness.push(row("a", 1, 500))
        assert harness.take() == []
        harness.end()
        testing.assert_same_rows(harness.take(), [{"k": "a", "n": 1}] * 2)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_late_rows_are_counted_through_restarts(parallelism: int) -> None:
    given = [row("a", 1, 5), AdvanceWatermark(at(10)), row("a", 1, 5), row("b", 1, 6), row("a", 1, 15)]
    result = testing.run(counts, given, parallelism=parallelism, restarts=[Restart(1), Restart(2, 2)])
    testing.assert_same_rows(result.rows, [{"k": "a", "n": 1}] * 2)
    assert result.late_rows == 2


class Relay(hg.KeyedProcessFunction):
    """Holds each row back for a second of the clock, and adds the time at which it passes it on."""

    waiting = hg.ListState(pa.int64(), ttl="1 h")

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        self.waiting.add(int(row["said"]))
        ctx.register_processing_time_timer(ctx.processing_time + 1_000_000)

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        for n in self.waiting.get():
            yield {"k": ctx.key[0], "said": f"{n + ctx.processing_time // 1_000_000}"}
        self.waiting.clear()


def relayed(env: hg.StreamEnvironment) -> hg.DataStream:
    said = read(env).map(lambda row: {"k": row["k"], "said": str(row["n"])}, schema=SAID)
    once = said.key_by("k").process(Relay(), schema=SAID)
    return once.key_by("k").process(Relay(), schema=SAID)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_advancing_the_clock_fires_the_timers_of_all_operators(parallelism: int) -> None:
    with PipelineHarness(relayed, parallelism=parallelism) as harness:
        for n in range(10):
            harness.push(row(f"{n}", n * 100))
        harness.advance_clock(at("999 ms"))
        assert harness.take() == []
        harness.advance_clock(at("1 s"))  # the row leaves the first operator
        assert harness.take() == []
        harness.restart(parallelism=2)
        harness.advance_clock(at("2 s"))
        testing.assert_same_rows(harness.take(), [{"k": f"{n}", "said": f"{n * 100 + 3}"} for n in range(10)])


def test_state_expires_by_the_clock_of_the_test() -> None:
    with PipelineHarness(relayed) as harness:
        harness.push(row("a", 7))
        harness.advance_clock(at("2 h"))
        harness.advance_clock(at("3 h"))
        assert harness.take() == []


def joined(**options: Any) -> Any:
    def pipeline(env: hg.StreamEnvironment) -> hg.DataStream:
        left = read(env, "left").union(read(env, "more")).select("k", "n")
        return left.join(read(env, "right").select("k", m="n"), on="k", **options)

    return pipeline


def test_rows_of_a_join_leave_by_the_clock_of_the_test() -> None:
    with PipelineHarness(joined(ttl="1 s")) as harness:
        harness.push(row("a", 1), source="left")
        harness.advance_clock(at("1 s"))
        harness.push(row("a", 2), source="right")
        assert harness.take() == [{"k": "a", "n": 1, "m": 2}]
        harness.advance_clock(at("1001 ms"))
        harness.push(row("a", 3), source="right")
        assert harness.take() == []
        harness.push(row("a", 4), source="more")
        testing.assert_same_rows(harness.take(), [{"k": "a", "n": 4, "m": 2}, {"k": "a", "n": 4, "m": 3}])


def test_a_join_waits_for_the_watermarks_of_all_sources_and_restarts() -> None:
    with PipelineHarness(joined(within=("0 s", "10 s"), how="left")) as harness:
        harness.push(row("a", 1, 5), source="left")
        harness.push(row("b", 2, 5), source="more")
        harness.restart(parallelism=2)
        harness.push(row("b", 3, 14), source="right")
        assert harness.take() == [{"k": "b", "n": 2, "m": 3}]
        for source in ("left", "more", "right"):
            assert harness.take() == []
            harness.advance_watermark(at("16 s"), source=source)
        assert harness.take() == [{"k": "a", "n": 1, "m": None}]


# --- repeatable runs


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_two_runs_return_the_same_rows_in_the_same_order(parallelism: int) -> None:
    given: list[Any] = [row("abcdefg"[n % 7], n, n % 20) for n in range(24)]
    given[8:8] = [AdvanceWatermark(at(10))]
    given[16:16] = [AdvanceWatermark(at(20)), AdvanceClock(at(5))]
    first, second = (testing.run(counts, given, parallelism=parallelism) for _ in range(2))
    assert first.rows == second.rows
    assert first.late_rows == second.late_rows > 0


class Forgetful(hg.KeyedProcessFunction):
    """Counts in an attribute, which no checkpoint stores."""

    def open(self, ctx: hg.ProcessContext) -> None:
        self.seen = 0

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        self.seen += 1
        yield {"k": row["k"], "said": f"{self.seen}"}


def test_a_restart_shows_what_is_not_in_checkpoints() -> None:
    def pipeline(env: hg.StreamEnvironment) -> hg.DataStream:
        return read(env).key_by("k").process(Forgetful(), schema=SAID)

    rows = [row("a", n) for n in range(4)]
    undisturbed = testing.run(pipeline, rows).rows
    with pytest.raises(AssertionError, match="missing"):
        testing.assert_same_rows(testing.run(pipeline, rows, restarts=[Restart(2)]).rows, undisturbed)


def test_outputs_are_found_by_name_or_uid() -> None:
    def pipeline(env: hg.StreamEnvironment) -> hg.DataStream:
        read(env).sink_to(hg.sinks.printer()).name("all").uid("of-all")
        return read(env, "others").uid("source-2")

    with PipelineHarness(pipeline) as harness:
        harness.push(row("a", 1), source="source-2")
        harness.push(row("b", 2), source="rows")
        assert harness.take() == [row("a", 1)]
        assert harness.take("of-all") == [row("b", 2)]
        assert harness.take("all") == []
    with pytest.raises(hg.PlanError, match="no output 'al'; it has 'returned', 'all'"):
        testing.run(pipeline, {})["al"]


def test_a_restart_with_other_outputs_is_refused() -> None:
    names = iter(["first", "second", "first"])

    with PipelineHarness(lambda env: {next(names): read(env), "same": read(env, "b")}) as harness:
        harness.push(row("a", 1), source="rows")
        with pytest.raises(hg.PlanError, match="had the outputs 'first', 'same', and now it has 'second', 'same'"):
            harness.restart()
        harness.restart()
        assert harness.take("first") == [row("a", 1)]


# --- errors


def test_run_raises_the_error_of_a_function() -> None:
    def broken(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError("of the user")

    with pytest.raises(hg.UserFunctionError, match="ZeroDivisionError: of the user"):
        testing.run(lambda env: read(env).map_batches(broken, schema=ROWS), [row("a", 1)], parallelism=2)


class Broken(hg.KeyedProcessFunction):
    """Raises in a call on a row, or in the call of its timer."""

    def __init__(self, *, in_timer: bool) -> None:
        self.in_timer = in_timer

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> None:
        if not self.in_timer:
            raise ZeroDivisionError("of the user")
        ctx.register_processing_time_timer(1)

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> None:
        raise ZeroDivisionError("of the user")


@pytest.mark.parametrize("in_timer", [False, True])
def test_run_raises_the_error_of_a_function_behind_an_exchange(in_timer: bool) -> None:
    def pipeline(env: hg.StreamEnvironment) -> hg.DataStream:
        return read(env).key_by("k").process(Broken(in_timer=in_timer), schema=SAID)

    for _ in range(5):  # the error comes while the harness waits for the barriers of its checkpoint
        with pytest.raises(hg.UserFunctionError, match="ZeroDivisionError: of the user"):
            testing.run(pipeline, [row("a", 1), AdvanceClock(at(5))])


def test_a_function_that_does_not_return_is_shown_with_its_line() -> None:
    opens = threading.Event()

    def hang(batch: pa.RecordBatch) -> pa.RecordBatch:
        opens.wait(60)
        return batch

    with PipelineHarness(lambda env: read(env).map_batches(hang, schema=ROWS), timeout="3 s") as harness:
        with pytest.raises(TimeoutError) as caught:
            harness.push(row("a", 1))
        opens.set()
    assert "did not finish {'k': 'a'" in str(caught.value)
    assert "within 3 s" in str(caught.value)
    assert "in hang\n    opens.wait(60)" in str(caught.value)


def test_a_timeout_shows_no_function_of_an_earlier_job() -> None:
    may_end, hangs = threading.Event(), threading.Event()

    def of_an_earlier_job() -> None:
        hangs.set()
        may_end.wait(60)

    def hang(batch: pa.RecordBatch) -> pa.RecordBatch:
        may_end.wait(60)
        return batch

    earlier = threading.Thread(target=of_an_earlier_job, name="headgate-map[0]")
    earlier.start()
    hangs.wait()
    with PipelineHarness(lambda env: read(env).map_batches(hang, schema=ROWS), timeout="3 s") as harness:
        with pytest.raises(TimeoutError) as caught:
            harness.push(row("a", 1))
        may_end.set()
    earlier.join()
    assert "in hang\n" in str(caught.value)
    assert "of_an_earlier_job" not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1, "-1 s"])
def test_a_timeout_that_no_step_can_keep_is_refused(timeout: Any) -> None:
    with pytest.raises(hg.ConfigError, match=f"timeout={timeout!r} must be more than 0 s"):
        PipelineHarness(read, timeout=timeout)


def test_a_timeout_at_the_end_of_the_input_names_the_step() -> None:
    stop = threading.Event()

    class Forever(hg.KeyedProcessFunction):
        def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> None:
            ctx.register_event_time_timer(ctx.timestamp)

        def on_timer(self, time: int, ctx: hg.ProcessContext) -> None:
            if not stop.is_set():
                ctx.register_event_time_timer(time + 1)

    def pipeline(env: hg.StreamEnvironment) -> hg.DataStream:
        return read(env).key_by("k").process(Forever(), schema=SAID)

    with PipelineHarness(pipeline, timeout="3 s") as harness:  # the push must end in this time
        harness.push(row("a", 1))
        with pytest.raises(TimeoutError, match="the end of its input within 3 s"):
            harness.end()
        stop.set()


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (lambda env: None, "the pipeline has no result: return its stream"),
        (lambda env: 7, "the pipeline returned 7: return a stream"),
        (lambda env: read(env).collect(), r"calls collect\(\), but only the test may run it"),
        (lambda env: (read(env).sink_to(hg.sinks.printer()), env.execute()), r"calls execute\(\), but only the test"),
        (lambda env: read(env).to_dataframe(), r"calls to_dataframe\(\), but only the test"),
    ],
)
def test_run_refuses_a_function_that_builds_no_pipeline(pipeline: Any, message: str) -> None:
    with pytest.raises(hg.PlanError, match=message):
        testing.run(pipeline, [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"k": "a", "m": 1}], "there is no column 'm'; the source has: k string, n int64"),
        ([{"n": 1.5}], r"\[1.5\] do not fit column 'n' of type int64"),
        ([pa.table({"n": [1]})], r"the test gives have the schema \(n int64\); the source has \(k string, n int64"),
        ([7], "7 is not a row: give a dict"),
        ({"n": 1}, "1 is not a list of rows: give a list of dicts"),
        ([AdvanceWatermark("soon")], "advance_watermark: 'soon' is not a moment"),  # type: ignore[arg-type]
        ([AdvanceClock(at(2)), AdvanceClock(at(1))], "1970-01-01T00:00:01.000000Z is before"),
        ([hg.SideOutput("worse", {})], "the source has no side output 'worse'"),
    ],
)
def test_run_refuses_rows_that_do_not_fit_the_source(given: Any, message: str) -> None:
    with pytest.raises(hg.ConfigError, match=message):
        testing.run(read, given)


def test_a_row_without_a_value_for_a_column_that_is_not_nullable_is_refused() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(hg.ConfigError, match="column 'n' is not nullable"):
        testing.run(lambda env: env.from_source(hg.sources.csv("in/", schema=schema)), [{}])


def test_a_source_without_event_time_has_no_watermark() -> None:
    with pytest.raises(hg.ConfigError, match="the source has no event time; give it one"):
        testing.run(lambda env: env.from_source(hg.sources.csv("in/", schema=ROWS)), [AdvanceWatermark(at(1))])


def test_a_restart_after_the_last_row_is_refused() -> None:
    with pytest.raises(hg.ConfigError, match=r"Restart\(row=3, parallelism=None\): the test gives only 2 rows"):
        testing.run(read, [row("a", 1), row("a", 2)], restarts=[Restart(3)])
    with pytest.raises(hg.ConfigError, match="row=-1 must be the number of a row"):
        Restart(-1)


def test_unknown_sources_and_outputs_are_refused() -> None:
    with pytest.raises(hg.PlanError, match="several sources; name one of them: 'left', 'right'"):
        testing.run(two_sources, [row("a", 1)])
    with pytest.raises(hg.PlanError, match="no source 'middle'; there are: 'left', 'right'"):
        testing.run(two_sources, {"middle": [row("a", 1)]})
    result = testing.run(lambda env: {"one": read(env), "two": read(env, "b")}, {})
    with pytest.raises(hg.PlanError, match=r"several outputs; write result\[name\] with one of 'one', 'two'"):
        _ = result.rows


def test_a_harness_is_used_within_its_block_and_before_its_end() -> None:
    harness = PipelineHarness(read)
    with pytest.raises(hg.ConfigError, match="use the harness in a with block"):
        harness.push(row("a", 1))
    with harness:
        harness.end()
        with pytest.raises(hg.ConfigError, match="take no step after end"):
            harness.push(row("a", 1))


def test_a_harness_is_used_once() -> None:
    with PipelineHarness(read) as harness, pytest.raises(hg.ConfigError, match="make a new harness"), harness:
        pass
    with pytest.raises(hg.ConfigError, match="one with block: make a new harness"):
        harness.__enter__()
