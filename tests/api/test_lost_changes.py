"""Headgate warns of a function that changes a variable of the program, but runs on a copy in another process."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
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
ARRAY = np.zeros(2)
NOTHING = None


@dataclass
class Stats:
    rows: int = 0
    seen: list[object] = field(default_factory=list)
    model: object = None
    _cache: dict[object, object] = field(default_factory=dict)
    kinds: ClassVar[set[object]] = set()

    def add(self, x):
        self.rows += 1


STATS = Stats()
SPACE = SimpleNamespace(rows=0)
LOCAL = threading.local()
LOCAL.rows = 0


def appends(x):
    LIST.append(x)


def extends(x):
    LIST.extend([x] if x else [])


def sets_item(x):
    TABLE[x["key"] if x else "none"] = x


def adds_to_item(x):
    TABLE[len(x), x] += 1  # type: ignore[operator]


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


def counts_up(x):
    global NUMBER
    NUMBER += 1
    return x


def counts_in_an_array(x):
    ARRAY[x] += 1


def keeps_the_last(x):
    global NUMBER
    if x:
        NUMBER = x


def counts_in_an_attribute(_x):
    STATS.rows += 1


def counts_in_a_namespace(x):
    SPACE.rows += x


def appends_to_an_attribute(x):
    STATS.seen.append(x)


def adds_to_a_class(x):
    Stats.kinds.add(x)


def calls_a_method(x):
    return [STATS.add(y) for y in x]


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
    counts_up: "NUMBER", keeps_the_last: "NUMBER", counts_in_an_array: "ARRAY", counts_in_an_attribute: "STATS.rows",
    counts_in_a_namespace: "SPACE.rows", appends_to_an_attribute: "STATS.seen", adds_to_a_class: "Stats.kinds",
    calls_a_method: "STATS.rows", deletes: "TABLE", sets_slice: "LIST", augments: "LIST", rebinds: "LIST",
    in_a_loop: "SET", in_an_except: "LIST", in_a_comprehension: "LIST", in_an_inner_function: "QUEUE",
    by_a_helper: "LIST", counts: "COUNTER",
}  # fmt: skip


@pytest.mark.parametrize("function", CHANGING, ids=lambda function: function.__name__)
def test_a_change_of_a_variable_of_the_module_is_found(function):
    value = reduce(getattr, CHANGING[function].split(".")[1:], globals()[CHANGING[function].split(".")[0]])
    assert {(variable, kind) for _, variable, kind in changes(function)} == {(CHANGING[function], type(value).__name__)}


def test_a_change_of_a_variable_of_an_outer_function_is_found():
    seen, taken, total = [], {}, 0

    def closes_over(x):
        nonlocal total
        total += 1
        taken[x] = seen

    method = type("Owner", (), {"take": lambda self, x: seen.append(x)})().take
    assert {variable for _, variable, _ in changes(closes_over)} == {"taken", "total"}
    assert changes(lambda x: seen.append(x)) == {
        ("test_a_change_of_a_variable_of_an_outer_function_is_found.<locals>.<lambda>", "seen", "list")
    }
    assert {variable for _, variable, _ in changes(partial(closes_over, 1))} == {"taken", "total"}
    assert {variable for _, variable, _ in changes(method)} == {"seen"}


def numbering():
    """Return a function whose count only the function itself can read."""
    count, stats = 0, Stats()

    def number(row):
        nonlocal count
        count += 1
        stats.rows += 1
        return {**row, "n": count}

    return number


class Callable:
    """An object that changes itself: attributes that the program can read, and others that each process needs."""

    def __init__(self):
        self.rows = 0
        self.seen = []
        self.stats = Stats()
        self.connection = None
        self._cache = {}

    def __call__(self, row):
        self.rows += 1
        self._connect()[row] = self.stats.add(row)
        self.stats.seen.append(row)
        self._cache[row] = 1
        return [self.seen.append(row) for _ in range(2)]

    def _connect(self):
        if self.connection is None:
            self.connection, self.made_here = {}, 1
        return self.connection


def test_a_change_of_an_object_in_a_variable_is_found():
    counter = Callable()
    expected = {
        *(("Callable.__call__", "counter.rows", "int"), ("Callable.__call__", "counter.seen", "list")),
        *(("Callable.__call__", "counter.stats.seen", "list"), ("Stats.add", "counter.stats.rows", "int")),
    }
    assert changes(counter) == expected
    assert changes(counter.__call__) == expected
    assert changes(lambda row: counter.__call__(row)) == expected
    assert changes(STATS.add) == {("Stats.add", "STATS.rows", "int")}


def test_a_change_that_only_the_function_can_read_is_no_finding():
    assert changes(numbering()) == set()
    assert changes(Callable()) == set()
    assert changes(Callable().__call__) == set()


class Slots:
    __slots__ = ("_own", "rows", "unset")

    def __init__(self):
        self.rows, self._own = 0, 0

    @property
    def computed(self):
        raise AssertionError("the user's code was run")

    @computed.setter
    def computed(self, value):
        self.rows = value

    def __getattr__(self, name):
        raise AssertionError(f"the user's code was run for {name}")

    def __call__(self, x):
        self.rows, self._own, self.unset = x, x, x
        self.computed = self.nothing = x  # type: ignore[misc]


def test_the_search_runs_no_code_of_the_object():
    slots = Slots()
    assert changes(slots) == {("Slots.__call__", "slots.rows", "int")}


def test_a_change_of_a_process_function_in_a_variable_is_found():
    class Sees(hg.KeyedProcessFunction):
        total = hg.ValueState(pa.int64())

        def __init__(self):
            self.rows, self.buffer = 0, []

        def open(self, ctx):
            self.buffer = []

        def process(self, batch, ctx):
            self.rows += batch.num_rows
            self.buffer.append(batch)
            self.total.update(1)

    sees = Sees()
    assert {variable for _, variable, _ in changes(sees)} == {"sees.rows"}
    assert changes(Sees()) == set()


def test_a_change_by_a_process_function_is_found():
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


def builds_what_its_process_needs(x):
    global NOTHING, NEW
    if NOTHING is None:
        NOTHING = NEW = object()  # type: ignore[name-defined]
    if STATS.model is None:
        STATS.model = STATS._cache[x] = NOTHING
    LOCAL.rows += 1
    STATS.new = 1  # type: ignore[attr-defined]
    return NOTHING


def changes_what_it_is_given(x):
    x.append(LIST)
    x[TABLE["key"]] = SET
    x["number"] += NUMBER


@pytest.mark.parametrize(
    "function",
    [reads, has_its_own, builds_what_its_process_needs, changes_what_it_is_given, print, len, None, "a string"],
)
def test_a_function_that_only_reads_has_no_finding(function):
    assert changes(function) == set()


def rows_of(env, seen):
    rows = env.from_source(hg.sources.iterable([[{"n": 1}], [{"n": 2}]]))
    rows.sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.extend(batch["n"].to_pylist())))
    return rows


def test_a_job_in_processes_warns_once_at_the_line_that_runs_it():
    seen: list[Any] = []
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))
    rows = rows_of(env, seen).map_batches(lambda batch: batch if LIST else None, schema=pa.schema({"n": pa.int64()}))
    rows.sink_to(hg.sinks.null())
    with pytest.warns(hg.LostChangeWarning) as caught:
        env.execute()
    assert [Path(warning.filename).name for warning in caught] == ["test_lost_changes.py"]
    message = str(caught[0].message)
    assert message.startswith("for_each_batch: rows_of.<locals>.<lambda> changes the list 'seen' of this program")
    assert "collect()" in message
    assert "LocalDeployment(processes=False)" in message
    assert seen == []


def test_a_job_in_threads_changes_the_variable_itself():
    seen: list[Any] = []
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows_of(env, seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()
    assert sorted(seen) == [1, 2]


def test_a_script_gets_a_warning_with_its_line(tmp_path):
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


def test_a_script_gets_warnings_of_a_number_and_an_object(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import pyarrow as pa, headgate as hg\n"
        "total = 0\n"
        "def add_up(row):\n"
        "    global total\n"
        "    total += row['n']\n"
        "    return row\n"
        "class Counter:\n"
        "    def __init__(self): self.seen = []\n"
        "    def __call__(self, row):\n"
        "        self.seen.append(row)\n"
        "        return row\n"
        "counter, schema = Counter(), pa.schema({'n': pa.int64()})\n"
        "rows = hg.StreamEnvironment().from_source(hg.sources.iterable([[{'n': 1}]]))\n"
        "rows.map(add_up, schema=schema).map(counter, schema=schema).map(Counter(), schema=schema).collect()\n"
        "print(total, counter.seen)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0 []\n"
    messages = [line.partition(", but")[0] for line in done.stderr.splitlines() if "LostChangeWarning:" in line]
    assert messages == [
        f"{script}:14: LostChangeWarning: map: add_up changes the int 'total' of this program",
        f"{script}:14: LostChangeWarning: map#2: Counter.__call__ changes the list 'counter.seen' of this program",
    ]
