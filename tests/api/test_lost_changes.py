"""A function that changes a variable of the program, and runs on a copy of it in another process, draws a warning."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import Counter, defaultdict, deque
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate.api.lost_changes import changes

LIST: list[object] = []
MORE: list[object] = []
TABLE: dict[object, object] = {}
LISTS: dict[object, list[object]] = defaultdict(list)
COUNTER: Counter[object] = Counter()
QUEUE: deque[object] = deque()
SET = {1}
NUMBER = 0


def appends(x):
    LIST.append(x)


def extends(x):
    LIST.extend([x] if x else [])


def sets_item(x):
    TABLE[x["key"] if x else "none"] = x


def adds_to_item(x):
    TABLE[len(x), x] += 1


def adds_to_list_in_item(x):
    LISTS[x].append(x)


def deletes(x):
    del TABLE[x]


def sets_slice(x):
    LIST[1 : len(x)] = x


def augments(x):
    global LIST
    LIST += [x]


def rebinds(x):
    global LIST
    LIST = [*LIST, x]


def in_a_loop(xs):
    for x in xs:
        if x:
            continue
        try:
            SET.add(x)
        except TypeError:
            raise


def in_an_except(x):
    try:
        return x[0]
    except KeyError:
        LIST.append(x)
        return None


def in_a_comprehension(xs):
    return [LIST.append(x) for x in xs]


def in_an_inner_function(x):
    def inner():
        QUEUE.appendleft(x)

    return inner()


def by_a_helper(x):
    return appends(x)


def counts(x):
    COUNTER.update(x)
    return x


CHANGING = {
    appends: "LIST", extends: "LIST", sets_item: "TABLE", adds_to_item: "TABLE", adds_to_list_in_item: "LISTS",
    deletes: "TABLE", sets_slice: "LIST", augments: "LIST", rebinds: "LIST", in_a_loop: "SET", in_an_except: "LIST",
    in_a_comprehension: "LIST", in_an_inner_function: "QUEUE", by_a_helper: "LIST", counts: "COUNTER",
}  # fmt: skip


@pytest.mark.parametrize("function", CHANGING, ids=lambda function: function.__name__)
def test_what_changes_a_variable_of_the_module(function):
    assert {(variable, kind) for _, variable, kind in changes(function)} == {
        (CHANGING[function], type(globals()[CHANGING[function]]).__name__)
    }


def test_what_changes_a_variable_of_the_function_around_it():
    seen, taken, total = [], {}, 0

    def closes_over(x):
        nonlocal total
        total += 1
        taken[x] = seen

    method = type("Owner", (), {"take": lambda self, x: seen.append(x)})().take
    assert {variable for _, variable, _ in changes(closes_over)} == {"taken"}
    assert changes(lambda x: seen.append(x)) == {
        ("test_what_changes_a_variable_of_the_function_around_it.<locals>.<lambda>", "seen", "list")
    }
    assert {variable for _, variable, _ in changes(partial(closes_over, 1))} == {"taken"}
    assert {variable for _, variable, _ in changes(method)} == {"seen"}


def test_a_process_function():
    seen = []

    class Sees(hg.KeyedProcessFunction):
        def process(self, batch, ctx):
            seen.extend(batch.to_pylist())

    assert {variable for _, variable, _ in changes(Sees())} == {"seen"}


def reads(x):
    copy = list(LIST)
    copy.append(TABLE.get(x, LIST[0]))
    table = {**TABLE}
    table[len(copy)] = [LIST[0] for LIST_ in copy if x in SET]
    return copy if LIST else table


def has_its_own(x):
    LIST = []
    LIST.append(x)

    def inner():
        LIST.append(x)
        return LIST

    return inner()


def changes_what_it_is_given(x):
    x.append(LIST)
    x[TABLE["key"]] = SET
    x["number"] += NUMBER


@pytest.mark.parametrize("function", [reads, has_its_own, changes_what_it_is_given, print, len, None, "a string"])
def test_what_only_reads(function):
    assert changes(function) == set()


def rows_of(env, seen):
    rows = env.from_source(hg.sources.iterable([[{"n": 1}], [{"n": 2}]]))
    rows.sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.extend(batch["n"].to_pylist())))
    return rows


def test_a_job_in_processes_warns_once_at_the_line_that_runs_it():
    seen = []
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))
    rows = rows_of(env, seen).map_batches(lambda batch: batch if LIST else None, schema=pa.schema({"n": pa.int64()}))
    rows.sink_to(hg.sinks.null())
    with pytest.warns(hg.LostChangeWarning) as caught:
        env.execute()
    assert [Path(warning.filename).name for warning in caught] == ["test_lost_changes.py"]
    said = str(caught[0].message)
    assert said.startswith("for_each_batch: rows_of.<locals>.<lambda> changes the list 'seen' of this program")
    assert "collect()" in said and "LocalDeployment(processes=False)" in said
    assert seen == []


def test_a_job_in_threads_changes_the_variable_itself():
    seen = []
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows_of(env, seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()
    assert sorted(seen) == [1, 2]


def test_a_script_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import headgate as hg\n"
        "seen = []\n"
        "env = hg.StreamEnvironment()\n"
        "rows = env.from_source(hg.sources.iterable([[{'n': 1}]]))\n"
        "rows.sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.append(batch)))\n"
        "print(env.execute().rows_out, seen)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "1 []\n"
    assert done.stderr.startswith(f"{script}:6: LostChangeWarning: for_each_batch: <lambda> changes the list 'seen'")
