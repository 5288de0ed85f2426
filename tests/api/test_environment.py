"""Which sinks a run includes, and what is refused before anything runs."""

from __future__ import annotations

import signal
import sys
import threading

import pyarrow as pa
import pytest

import headgate as hg
from tests.runtime.jobs import eventually

NUMBERS = pa.record_batch({"n": list(range(100))})


def numbers(env: hg.StreamEnvironment) -> hg.DataStream:
    return env.from_source(hg.sources.iterable([NUMBERS.slice(start, 10) for start in range(0, 100, 10)]))


def endless(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"parallelism": 0}, hg.PlanError, "parallelism must be a whole number of at least 1"),
        ({"parallelism": 3, "config": hg.Config(max_parallelism=2)}, hg.PlanError, "above the maximum, 2"),
        ({"config": {"segment_size": 512}}, hg.ConfigError, r"hg\.Config"),
        ({"spark": 2}, hg.PlanError, "SparkSession"),
        (
            {"spark": hg.Config()},
            hg.PlanError,
            r"not a Config; give all other arguments by name: .*config=hg\.Config\(\.\.\.\)",
        ),
        ({"deployment": "local"}, hg.PlanError, r"hg\.LocalDeployment"),
    ],
)
def test_an_environment_refuses_impossible_arguments(options, error, words):
    with pytest.raises(error, match=words):
        hg.StreamEnvironment(**options)


def test_sources_sinks_and_watermarks_of_another_type_are_refused(plans):
    with pytest.raises(hg.PlanError, match=r"a str is not a source; use one of hg\.sources"):
        plans.env.from_source("flights/*.csv")
    with pytest.raises(hg.PlanError, match=r"watermark must be a hg\.Watermark"):
        plans.env.from_source(hg.sources.iterable([NUMBERS]), watermark="ts")
    with pytest.raises(hg.PlanError, match=r"not a sink; use one of hg\.sinks"):
        plans.stream().sink_to("out/")


def test_a_run_without_a_sink_is_refused(plans):
    plans.stream()
    for run in (plans.env.execute, plans.env.execute_async, plans.env.explain):
        with pytest.raises(hg.PlanError, match="no sink was added since the last run"):
            run()


def test_a_sink_accepts_only_one_stream(plans):
    sink = hg.sinks.null()
    plans.stream().sink_to(sink)
    with pytest.raises(hg.PlanError, match="already takes another stream"):
        plans.stream().sink_to(sink)


def test_explain_shows_tasks_and_exchanges(plans, capsys):
    stream = plans.stream().filter("delay > 0")
    counts = stream.key_by("carrier").window(hg.tumble("1 h")).aggregate(flights=hg.count())
    counts.sink_to(hg.sinks.printer()).name("screen")
    stream.broadcast().filter("delay > 9").sink_to(hg.sinks.null())
    counts.key_by().aggregate(worst=hg.max("flights")).sink_to(hg.sinks.null()).set_parallelism(1)
    plans.env.explain()
    assert capsys.readouterr().out.splitlines() == [
        "1  paper -> filter                                  x2",
        "2  window (tumble(1 h)) -> screen                   x2",
        "     from 1: by key group of carrier (sends ts, carrier)",
        "3  filter#2 -> null                                 x2",
        "     from 1: broadcast",
        "4  aggregate (upserts by one global key) -> null#2  x1",
        "     from 2: one global key (sends flights)",
    ]


def test_explain_shows_how_rows_are_partitioned(plans, capsys):
    def by_carrier(batch, subtasks): ...

    stream = plans.stream()
    for partitioned in (stream.rescale(), stream.shuffle(), stream.to_one(), stream.rebalance(load_aware=True)):
        partitioned.sink_to(hg.sinks.null())
    stream.partition_by(by_carrier).sink_to(hg.sinks.null())
    plans.env.explain()
    exchanges = [line.strip() for line in capsys.readouterr().out.splitlines() if "from" in line]
    assert [line.removeprefix("from 1: ").partition("test_explain")[0] for line in exchanges] == [
        "rescale", "shuffle", "to one subtask", "rebalance to the least loaded", "by function ",
    ]  # fmt: skip
    assert exchanges[-1].endswith(".by_carrier")


def test_a_run_includes_the_sinks_added_since_the_last_run():
    env = hg.StreamEnvironment(parallelism=2)
    stream = numbers(env)
    first, second = hg.sinks.collect(), hg.sinks.collect()
    stream.sink_to(first)
    assert env.execute("one").rows_out == 100
    stream.filter("n < 10").sink_to(second)
    assert stream.filter("n < 5").collect().num_rows == 5
    assert (first.rows, second.rows) == (100, 10)
    with pytest.raises(hg.PlanError, match="no sink was added"):
        env.execute()


def test_a_run_that_cannot_start_keeps_its_sinks(tmp_path):
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=False))
    stream = numbers(env)
    (tmp_path / "out").mkdir()
    old = tmp_path / "out/old.parquet"
    old.touch()
    stream.sink_to(hg.sinks.parquet(tmp_path / "out"))
    for run in (env.execute, stream.collect):
        with pytest.raises(hg.SinkError, match="not empty"):
            run()
    old.unlink()
    assert env.execute().rows_out == 100
    with pytest.raises(hg.PlanError, match="no sink was added"):
        env.execute()


def test_collect_with_a_limit_stops_a_source_without_end():
    env = hg.StreamEnvironment(parallelism=2)
    waiting = hg.sinks.collect()
    stream = env.from_source(hg.sources.generate(endless))
    numbers(env).sink_to(waiting)
    assert stream.collect(limit=12_345).num_rows == 12_345
    assert waiting.rows == 0
    assert numbers(env).collect(limit=1000).num_rows == 100
    assert env.execute().rows_out == 100


@pytest.mark.parametrize("limit", [0, -1, 2.5, True])
def test_collect_refuses_an_impossible_limit(plans, limit):
    with pytest.raises(hg.PlanError, match="limit="):
        plans.stream().collect(limit)


def test_calls_that_wait_for_the_end_refuse_a_source_without_end(plans, tmp_path):
    stream = plans.stream(bounded=False)
    with pytest.raises(hg.PlanError, match=r"collect\(\) waits for the last row, and source 'paper' has no end"):
        stream.collect()
    stream.filter("delay > 1").sink_to(hg.sinks.parquet(tmp_path / "out"))
    with pytest.raises(hg.PlanError, match="makes its rows visible when the job ends, and source 'paper' has no end"):
        plans.env.execute()
    assert not (tmp_path / "out").exists()


FINAL = {
    "aggregate": lambda stream: stream.key_by("n").aggregate(rows=hg.count(), final=True),
    "top": lambda stream: stream.key_by().top(2, by="n", final=True),
    "deduplicate": lambda stream: stream.deduplicate("n", keep="last", final=True),
}


@pytest.mark.parametrize("name", FINAL)
def test_rows_at_the_end_of_a_source_without_end_cause_a_warning(name, caplog):
    """Only `stop(drain=True)` ends such an input."""
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(hg.sources.generate(endless, rate=1000))
    FINAL[name](stream).sink_to(hg.sinks.null())
    FINAL[name](numbers(env)).sink_to(hg.sinks.null())
    env.execute_async().stop(drain=True)
    [warning] = [record.getMessage() for record in caplog.records if record.name == "headgate.api.results"]
    assert warning == (
        f"'{name}' has final=True, so it emits rows only when its input ends, and source 'generate' has no end: until "
        "job.stop(drain=True) it emits nothing, and its state grows with each new key; leave final=True out, or use "
        "windows"
    )
    with pytest.raises(hg.PlanError, match=rf"collect\(\) waits for rows, but '{name}' has final=True.* has no end"):
        FINAL[name](stream).collect(limit=1)


def test_files_below_a_source_without_end_show_with_checkpoints(tmp_path):
    config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="20 ms")
    env = hg.StreamEnvironment(config=config)
    env.from_source(hg.sources.generate(endless, rate=1000)).sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async()
    try:
        eventually(lambda: any((tmp_path / "out").glob("part-*")))
    finally:
        job.cancel()


def test_a_dataframe_needs_spark(plans):
    with pytest.raises(hg.PlanError, match=r"to_dataframe\(\) needs Spark"):
        plans.stream().to_dataframe()


def test_an_interrupt_cancels_the_job():
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    main = threading.main_thread().ident or 0
    waits = []

    def interrupt(_batch, _info):
        """Interrupt once, after the program has waited a while: at the start of a wait Python's own locks may break."""
        waits.append(sys._current_frames()[main].f_code.co_name == "wait")
        if all(waits[-2:]) and waits.count(True) == 2:
            signal.pthread_kill(main, signal.SIGINT)

    env.from_source(hg.sources.generate(endless, rate=10)).sink_to(hg.sinks.for_each_batch(interrupt))
    with pytest.raises(KeyboardInterrupt):
        env.execute()


def test_the_error_of_a_function_reaches_the_caller():
    env = hg.StreamEnvironment(parallelism=2)

    def wrong(_row):
        raise ValueError("no such thing")

    stream = numbers(env).map(wrong, schema=NUMBERS.schema).name("mine")
    for run in (stream.collect, lambda: stream.collect(limit=1)):
        with pytest.raises(hg.UserFunctionError, match="no such thing") as error:
            run()
        assert (error.value.operator, error.value.subtask in (0, 1)) == ("mine", True)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (NUMBERS, r"a RecordBatch is not a source; write from_source\(hg.sources.iterable\(...\)\)"),
        (pa.table({"n": [1]}), r"a Table is not a source; write from_source\(hg.sources.iterable"),
        ([NUMBERS], r"a list is not a source; write from_source\(hg.sources.iterable"),
        ("in.csv", r"a str is not a source; use one of hg.sources: for files hg.sources.csv\('in.csv'\)"),
        (type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})(), r"hg.sources.dataframe\(df\)"),
    ],
)
def test_the_error_for_no_source_says_how_to_make_one(plans, given, remedy):
    with pytest.raises(hg.PlanError, match=remedy):
        plans.env.from_source(given)
