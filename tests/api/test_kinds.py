"""Append-only and upserting streams in the plan, and who refuses an upserting one."""

import pyarrow as pa
import pytest

import headgate as hg
from headgate.plan.graph import Upserts


def greatest(plans, **options):
    """A running maximum of each carrier: its rows replace one another."""
    return plans.stream().key_by("carrier").aggregate(delay=hg.max("delay"), **options)


def upserts(plans, stream):
    """The kind of the rows that a sink of the stream gets."""
    return plans.graph(stream).nodes[-1].upserts


def test_a_running_aggregate_upserts_by_its_key(plans):
    stream = greatest(plans)
    wanted = Upserts(("carrier",), stream._rows.last("test"))
    assert upserts(plans, stream) == wanted
    schema = stream.schema
    for more in (
        stream.filter("delay > 0"),
        stream.select("carrier"),
        stream.map_batches(lambda batch: batch, schema=schema),
        stream.rebalance().with_columns(delay="delay + 1"),
        stream.filter("carrier = 'AA'").union(stream.filter("carrier <> 'AA'")),
        stream.key_by("delay"),
    ):
        assert upserts(plans, more) == wanted


def test_results_that_stay_are_append_only(plans):
    class Keep(hg.KeyedProcessFunction):
        def process_element(self, row, ctx):
            yield row

    running = greatest(plans)
    windows = plans.stream().key_by("carrier").window(hg.tumble("1 h"))
    for stream in (
        plans.stream(),
        greatest(plans, final=True),
        windows.aggregate(rows=hg.count()),
        running.changes(),
        running.changes().filter("delay > 0"),
        running.key_by("carrier").process(Keep(), schema=running.schema),
    ):
        assert upserts(plans, stream) is None


def test_windows_with_allowed_lateness_upsert_by_key_and_window(plans):
    windows = plans.stream().key_by("carrier").window(hg.tumble("1 h")).allowed_lateness("1 min")
    kind = upserts(plans, windows.aggregate(rows=hg.count()))
    assert kind.key == ("carrier", "window_start", "window_end")
    with pytest.raises(hg.PlanError, match=r"leave out its allowed_lateness, and take late rows from late_output"):
        windows.aggregate(rows=hg.count()).sink_to(hg.sinks.csv("out"))


def test_late_rows_are_append_only_even_if_the_results_replace_one_another(plans, tmp_path):
    windows = plans.stream().key_by("carrier").window(hg.tumble("1 h")).allowed_lateness("1 min").late_output("late")
    results = windows.aggregate(rows=hg.count())
    late = results.side_output("late")
    late.sink_to(hg.sinks.parquet(tmp_path / "late"))
    assert upserts(plans, late.filter("delay > 0")) is None
    late.key_by("carrier").aggregate(rows=hg.count()).sink_to(adbc("carrier"))
    assert upserts(plans, late.key_by().window(hg.tumble("1 d")).aggregate(rows=hg.count())) is None
    assert upserts(plans, results.map_batches(lambda batch: batch, schema=results.schema)) is not None


def test_side_outputs_of_a_function_replace_one_another_as_its_rows_do(plans):
    running = greatest(plans)
    checked = running.map_batches(lambda batch: batch, schema=running.schema, side_outputs={"bad": running.schema})
    assert upserts(plans, checked.side_output("bad")) == upserts(plans, running)
    with pytest.raises(hg.PlanError, match="replace one another"):
        checked.side_output("bad").key_by().aggregate(rows=hg.count())


def test_no_key_of_a_sink_fits_sessions_that_grow(plans):
    sessions = plans.stream().key_by("carrier").window(hg.session("1 min")).allowed_lateness("1 min")
    grown = sessions.aggregate(rows=hg.count())
    for key in (["carrier"], ["carrier", "window_start"]):
        with pytest.raises(hg.PlanError, match=r"replaces sessions with other bounds .* leave out its allowed_late"):
            grown.sink_to(hg.sinks.adbc("sqlite", "uri", "t", mode="upsert", key=key))


def adbc(*key):
    return hg.sinks.adbc("sqlite", "uri", "t", mode="upsert", key=key)


def test_a_union_of_results_of_two_operators_is_refused(plans):
    """The last row of a key is then that of the operator whose row comes last."""
    by_origin = plans.stream().key_by("origin").aggregate(delay=hg.max("delay")).name("by origin")
    others = {
        "'by origin' by origin": by_origin.select(carrier="origin", delay="delay"),
        "'least' by carrier": plans.stream().key_by("carrier").aggregate(delay=hg.min("delay")).name("least"),
    }
    for shown, other in others.items():
        with pytest.raises(hg.PlanError) as error:
            greatest(plans).union(other)
        assert error.value.message == (
            f"union: the rows of 'aggregate' replace one another by carrier, and those of {shown}, apart from them: if "
            "both have a row with the same key, no row says which one is valid; use final=True there, or windows, "
            "whose results are final, or call union() before these operators, or write .changes() after both if each "
            "change is to count"
        )
        assert upserts(plans, greatest(plans).changes().union(other.changes())) is None


def test_a_union_with_append_only_rows_is_refused(plans):
    running, rows = greatest(plans), greatest(plans, final=True)
    for one, other in ((running, rows), (rows, running), (running.changes(), running)):
        with pytest.raises(hg.PlanError, match="'aggregate' replace one another by carrier, .* append-only"):
            one.union(other)
    assert upserts(plans, running.changes().union(rows)) is None


def test_a_union_of_parts_of_one_stream_keeps_its_kind(plans):
    stream = greatest(plans)
    parts = stream.filter("carrier = 'AA'").filter("carrier > 'A'").union(stream.filter("carrier <> 'AA'"))
    parts.union(stream).select(town="carrier", delay="delay").sink_to(adbc("town"))
    assert upserts(plans, parts).key == ("carrier",)
    plans.env.explain()


def test_a_sink_by_key_refuses_parts_that_went_different_ways(plans):
    """Rows of a key overtake one another, are others in each part, or have their key in other columns."""
    stream = plans.stream().key_by("carrier", "origin").aggregate(delay=hg.max("delay"))
    split = stream.map_batches(lambda batch: batch, schema=stream.schema, side_outputs={"even": stream.schema})
    for part, other in (
        (split, split.side_output("even")),
        (stream, stream.with_columns(delay="-delay")),
        (stream, stream.select(carrier="origin", origin="carrier", delay="delay")),
        (stream.filter("carrier = 'AA'"), stream.with_columns(delay="-delay").filter("carrier = 'AA'")),
    ):
        part.union(other).filter("carrier > 'A'").key_by("carrier").sink_to(adbc("carrier", "origin"))
        with pytest.raises(hg.PlanError, match="a union joins parts of them that went different ways"):
            plans.env.explain()
        plans.env._jobs.pending.clear()
    stream.changes().union(stream.changes().with_columns(delay="-delay")).sink_to(adbc("carrier", "origin"))
    plans.env.explain()


def test_a_sink_by_key_refuses_a_key_that_is_computed(plans):
    """'AA' and 'aa' would replace one another."""
    stream = greatest(plans)
    again = stream.with_columns(carrier="lower(carrier)").name("lower")
    for computed in (again, again.map_batches(lambda batch: batch, schema=stream.schema).filter("carrier = 'aa'")):
        with pytest.raises(hg.PlanError) as error:
            computed.sink_to(adbc("carrier"))
        assert error.value.message == (
            "sink_to(adbc): the rows of 'aggregate' replace one another by carrier, but 'lower' computes 'carrier': "
            "rows of two keys may then get the same value and replace one another; compute it before 'aggregate', or "
            "in a column that is not part of the sink's key; or write .changes() before if different keys stay "
            "different"
        )
    with pytest.raises(hg.PlanError, match="'select' computes 'airline'"):
        stream.select("delay", airline="lower(carrier)").sink_to(adbc("airline"))
    stream.with_columns(small="lower(carrier)").sink_to(adbc("carrier"))
    again.changes().sink_to(adbc("carrier"))
    plans.env.explain()


def test_a_sink_by_key_follows_a_key_with_another_name(plans):
    renamed = greatest(plans).select("delay", airline="carrier")
    renamed.filter("airline = 'AA'").sink_to(adbc("airline"))
    renamed.key_by("airline").sink_to(adbc("airline")).set_parallelism(3)
    named = pa.schema({"airline": pa.string()})
    greatest(plans).map_batches(lambda batch: batch, schema=named).sink_to(adbc("airline"))  # nobody knows
    plans.env.explain()
    for stream in (renamed, greatest(plans).select("delay"), greatest(plans).select(carrier="delay", delay="carrier")):
        with pytest.raises(hg.PlanError, match="replace one another by carrier"):
            stream.sink_to(adbc(stream.schema.names[0]))
    greatest(plans).select(carrier="delay", delay="carrier").sink_to(adbc("delay"))
    plans.env.explain()


@pytest.mark.parametrize("place", ["rebalance", "another key", "more subtasks"])
def test_a_sink_by_key_refuses_rows_that_may_overtake_one_another(plans, place):
    stream = greatest(plans)
    match place:
        case "rebalance":
            stream.rebalance().filter("carrier = 'AA'").sink_to(adbc("carrier"))
        case "another key":
            stream.key_by("delay").sink_to(adbc("carrier"))
        case _:
            stream.sink_to(adbc("carrier")).set_parallelism(3)
    with pytest.raises(hg.PlanError, match=r"sink_to\(adbc\): it keeps the last row .* overtake one another"):
        plans.env.explain()


def test_a_sink_by_key_takes_rows_that_stay_in_order(plans):
    stream = greatest(plans)
    stream.sink_to(adbc("carrier"))
    stream.key_by("carrier").sink_to(adbc("carrier")).set_parallelism(3)
    stream.sink_to(adbc("carrier")).set_parallelism(1)
    stream.filter("carrier <> 'AA'").with_columns(late="delay > 9").sink_to(adbc("carrier"))
    stream.rebalance().filter("delay > 9").changes().sink_to(hg.sinks.adbc("sqlite", "uri", "t"))
    plans.env.explain()


@pytest.mark.parametrize("condition", ["delay < 5", "carrier = 'AA' or delay < 5", lambda row: True])
def test_a_sink_by_key_refuses_a_filter_by_what_changes(plans, condition):
    greatest(plans).filter(condition).map_batches(lambda batch: batch, schema=greatest(plans).schema).sink_to(
        adbc("carrier")
    )
    with pytest.raises(hg.PlanError, match=r"a result of 'aggregate' changes so that 'filter' drops it"):
        plans.env.explain()


def names_of(keys):
    return keys.append_column("name", keys.column(0).cast("string"))


@pytest.mark.parametrize("of_function", [False, True])
def test_a_sink_by_key_refuses_an_inner_lookup_by_what_changes(plans, of_function):
    table = names_of if of_function else pa.table({"delay": [1], "name": ["one"]})
    schema = {"schema": pa.schema({"name": pa.string()})} if of_function else {}
    greatest(plans).lookup(table, on="delay", how="inner", **schema).name("names").sink_to(adbc("carrier"))
    with pytest.raises(hg.PlanError) as error:
        plans.env.explain()
    assert error.value.message == (
        "sink_to(adbc): when a result of 'aggregate' changes so that 'names' drops it, the sink keeps the last one "
        "that passed; write how='left', or look up by columns of the key only (carrier)"
    )


def test_a_sink_by_key_takes_lookups_that_keep_the_last_row(plans):
    for how, on, column in (("left", "delay", pa.array([1])), ("inner", "carrier", pa.array(["AA"]))):
        table = pa.table({on: column, "name": ["one"]})
        greatest(plans).lookup(table, on=on, how=how).sink_to(adbc("carrier"))
        plans.stream().lookup(table, on=on, how=how).sink_to(adbc("carrier"))  # append-only rows
    plans.env.explain()


def test_kafka_keeps_the_last_row_of_a_key_or_refuses(plans):
    kafka = hg.sinks.kafka
    with pytest.raises(hg.PlanError, match=r"sink_to\(kafka\): the rows of 'aggregate' replace one another"):
        greatest(plans).sink_to(kafka("localhost:1", "t"))
    with pytest.raises(hg.PlanError, match=r"key= is delay, but .* give the sink key=\['carrier'\], or write .changes"):
        greatest(plans).sink_to(kafka("localhost:1", "t", key="delay"))
    greatest(plans).sink_to(kafka("localhost:1", "t", key="carrier"))
    greatest(plans).changes().sink_to(kafka("localhost:1", "t"))


def test_chosen_rows_replace_one_another_unless_they_are_final(plans):
    stream = plans.stream()
    keyed = stream.key_by("carrier")
    kinds = {
        keyed.top(3, by="delay"): ("carrier", "rank"),
        keyed.max_by("delay"): ("carrier",),
        stream.deduplicate("origin", keep="last"): ("origin",),
        keyed.top(3, by="delay", final=True): None,
        stream.deduplicate("origin"): None,
    }
    for chosen, key in kinds.items():
        kind = upserts(plans, chosen)
        assert (None if kind is None else kind.key) == key
    for again in (lambda: greatest(plans).key_by().top(1, by="delay"), lambda: greatest(plans).deduplicate("delay")):
        with pytest.raises(hg.PlanError, match="replace one another"):
            again()


def test_an_aggregate_refuses_an_upserting_stream(plans):
    stream = greatest(plans).name("greatest").filter("delay > 0")
    for keyed in (stream.key_by(), stream.key_by("delay")):
        for final in (False, True):
            with pytest.raises(hg.PlanError) as error:
                keyed.aggregate(total=hg.sum("delay"), final=final)
    assert error.value.message == (
        "aggregate: the rows of 'greatest' replace one another: it emits a new row for a key (carrier) each time that "
        "the result changes, and aggregate would take each of them for a row of its own; use final=True there, "
        "or windows, whose results are final, or write .changes() after it if each change is to count"
    )
    stream.changes().key_by().aggregate(total=hg.sum("delay"))


def test_a_window_refuses_an_upserting_stream(plans):
    windows = plans.stream().key_by("carrier").window(hg.tumble("1 h")).allowed_lateness("1 min")
    again = windows.aggregate(rows=hg.count()).key_by().window(hg.tumble("1 d"))
    with pytest.raises(hg.PlanError, match="window: the rows of 'window' replace one another"):
        again.aggregate(rows=hg.sum("rows"))


@pytest.mark.parametrize("make", [hg.sinks.csv, hg.sinks.parquet])
def test_a_file_sink_refuses_an_upserting_stream(plans, make, tmp_path):
    with pytest.raises(hg.PlanError, match=r"sink_to\((csv|parquet)\): the rows of 'aggregate' replace one another"):
        greatest(plans).sink_to(make(tmp_path / "out"))
    greatest(plans, final=True).sink_to(make(tmp_path / "final"))
    greatest(plans).changes().sink_to(make(tmp_path / "changes"))


def test_other_sinks_get_each_change(plans):
    for sink in (
        hg.sinks.collect(), hg.sinks.printer(), hg.sinks.null(), hg.sinks.for_each_batch(lambda batch, info: None),
    ):  # fmt: skip
        greatest(plans).sink_to(sink)


def test_explain_shows_where_rows_begin_to_replace_one_another(plans, capsys):
    greatest(plans).filter("delay > 0").sink_to(hg.sinks.null())
    plans.stream().key_by().aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    plans.env.explain()
    lines = [line.partition("  x")[0].rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "2  aggregate (upserts by carrier) -> filter -> null" in lines
    assert "4  aggregate#2 (upserts by one global key)" in lines


@pytest.mark.parametrize(
    ("choose", "shown"),
    [
        (lambda stream: stream.key_by("carrier").top(3, by="delay"),
         "top (the 3 greatest by delay; upserts by carrier, rank)"),
        (lambda stream: stream.key_by("carrier").max_by("delay"), "top (the greatest by delay; upserts by carrier)"),
        (lambda stream: stream.key_by("carrier").min_by("delay", final=True), "top (the least by delay)"),
        (lambda stream: stream.key_by().window(hg.tumble("1 h")).top(2, by="delay", ascending=True),
         "window (tumble(1 h), the 2 least by delay)"),
        (lambda stream: stream.key_by().window(hg.session("1 h")).allowed_lateness("1 h").max_by("air"),
         "window (session(1 h), the greatest by air; upserts by session)"),
        (lambda stream: stream.key_by().window(hg.count_window(9)).max_by("delay"),
         "window (count_window(9), the greatest by delay)"),
        (lambda stream: stream.deduplicate("origin"), "deduplicate (the first row by origin)"),
        (lambda stream: stream.deduplicate(["carrier", "origin"], ttl="36 h"),
         "deduplicate (the first row by carrier, origin, ttl 36 h)"),
        (lambda stream: stream.deduplicate("origin", keep="last", ttl="1 d"),
         "deduplicate (the last row by origin, ttl 1 d; upserts by origin)"),
        (lambda stream: stream.deduplicate("origin", keep="last", final=True),
         "deduplicate (the last row by origin at the end)"),
    ],
)  # fmt: skip
def test_explain_shows_which_rows_are_chosen(plans, capsys, choose, shown):
    choose(plans.stream()).sink_to(hg.sinks.null())
    plans.env.explain()
    assert f"2  {shown} " in capsys.readouterr().out


def test_a_sum_over_a_running_maximum_is_refused_or_counts_every_change() -> None:
    """SQL's sum of the maxima is 200; the sum of all changes is another number, and one has to ask for it."""
    env = hg.StreamEnvironment(config=hg.Config(buffer_timeout=0), deployment=hg.LocalDeployment(1, processes=False))
    rows = [[{"k": key, "n": n}] for n in (50, 100) for key in "ab"]
    keyed = env.from_source(hg.sources.iterable(rows)).key_by("k")
    with pytest.raises(hg.PlanError, match="replace one another"):
        keyed.aggregate(n=hg.max("n")).key_by().aggregate(total=hg.sum("n"))
    final = keyed.aggregate(n=hg.max("n"), final=True).key_by().aggregate(total=hg.sum("n"), final=True)
    assert final.collect().to_pylist() == [{"total": 200}]
