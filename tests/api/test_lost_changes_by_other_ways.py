"""Headgate warns of changes by other ways: another name, a bound method, a default, or a function of `heapq`."""

from __future__ import annotations

import bisect
import heapq
import operator
import re
from collections import Counter, defaultdict, deque
from functools import partial
from heapq import heappop
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.api.lost_changes import changes

LIST: list[Any] = []
MORE: list[Any] = []
TABLE: dict[Any, Any] = {}
LISTS: dict[Any, list[Any]] = defaultdict(list)
COUNTER: Counter[Any] = Counter()
QUEUE: deque[Any] = deque()
SET = {1}
ARRAY = np.zeros(2)


class Rows:
    def __init__(self):
        self.rows, self.seen = 0, []

    def add(self, x):
        self.rows += 1


STATS = Rows()


def changes_the_first(to, x):
    to.append(x)


ADD, ADD_STATS = LIST.append, STATS.add


def pushes(x):
    heapq.heappush(LIST, x)


def pops(x):
    return heappop(LIST) if x else None


def inserts_in_order(x):
    bisect.insort(LIST, x, key=str)


def sets_item_by_a_function(x):
    operator.setitem(TABLE, x, len(x))


def appends_by_the_class(x):
    list.append(LIST, x)


def appends_left_by_the_class(x):
    return [deque.appendleft(QUEUE, y) for y in x]


def by_another_name(x):
    other = LIST
    for y in x:
        other.append(y)


def by_two_other_names(x):
    _, rows = TABLE, LIST
    rows.append(x)


def of_an_attribute_by_another_name(x):
    seen = STATS.seen
    seen.append(x)


def by_a_bound_method(x):
    ADD(x)


def passes_a_bound_method_on(x):
    return list(map(ADD, x))


def by_a_bound_method_of_an_object(x):
    ADD_STATS(x)


def by_a_default(x, to=LIST):
    to.append(x)


def by_a_keyword_default(x, *, to=TABLE):
    to[x] = x


def by_a_bound_method_as_a_default(x, add=SET.add):
    add(x)


BY_OTHER_WAYS = {
    pushes: "LIST", pops: "LIST", inserts_in_order: "LIST", sets_item_by_a_function: "TABLE",
    appends_by_the_class: "LIST", appends_left_by_the_class: "QUEUE", by_another_name: "LIST",
    by_two_other_names: "LIST",
    of_an_attribute_by_another_name: "STATS.seen", by_a_bound_method: "LIST", passes_a_bound_method_on: "LIST",
    by_a_bound_method_of_an_object: "STATS.rows", by_a_default: "LIST", by_a_keyword_default: "TABLE",
    by_a_bound_method_as_a_default: "SET", LIST.append: "LIST", TABLE.setdefault: "TABLE", COUNTER.update: "COUNTER",
    partial(list.append, LIST): "LIST", partial(heapq.heappush, LIST): "LIST",
    partial(changes_the_first, LIST): "LIST", partial(by_a_default, to=MORE): "MORE",
}  # fmt: skip


@pytest.mark.parametrize("function", BY_OTHER_WAYS)
def test_a_change_by_another_way_is_found(function):
    assert {variable for _, variable, _ in changes(function)} == {BY_OTHER_WAYS[function]}


def test_a_change_of_an_outer_variable_by_another_way_is_found():
    seen: list[object] = []
    add = seen.append

    def by_alias(x):
        other = seen
        other.append(x)

    functions = [
        *(by_alias, add, lambda x: add(x), lambda x, to=seen: to.append(x), lambda x, put=add: put(x)),
        *(lambda x: heapq.heappush(seen, x), lambda x: list.append(seen, x), lambda x: bisect.insort(seen, x)),
        *(partial(list.append, seen), lambda x, to=seen: [to.append(y) for y in x]),
    ]
    found = [{(variable, kind) for _, variable, kind in changes(function)} for function in functions]
    assert found == [{("seen", "list")}] * len(functions)
    assert changes(add) == {("list.append", "seen", "list")}


def has_a_cache(x, cache={}):  # noqa: B006  # the function's own
    return cache.setdefault(x, len(cache))


def has_a_heap_of_its_own(x, add=[].append):
    heap = list(LIST)
    heapq.heappush(heap, x)
    add(x)
    bisect.insort([], x)
    return bisect.bisect(LIST, x), list.index(LIST, x), dict.get(TABLE, x)


def copies_the_default(x, to=LIST):
    to = [*to]
    to.append(x)
    return to


def counts_a_copy_of_an_item(x):
    count = TABLE[x]
    count += 1
    return count


def names_a_copy_later(x):
    rows = LIST
    if x:
        rows = list(rows)
    rows.append(x)
    return rows


def names_items(x):
    first, second = LISTS
    [third] = LISTS
    first += x
    second += x
    third += x
    item: Any = LISTS[x]
    item += [x]
    for row in LISTS:
        row += x


def reads_by_another_name(x):
    table, rows = TABLE, LIST
    other = rows
    return table.get(x), other[0], len(other), x in table


@pytest.mark.parametrize("function", [
    has_a_cache, has_a_heap_of_its_own, copies_the_default, counts_a_copy_of_an_item, names_a_copy_later,
    names_items, reads_by_another_name, LIST.index, TABLE.get, [].append, partial(list.index, LIST),
    partial(has_a_cache, cache={}),
])  # fmt: skip
def test_what_looks_like_a_change_by_another_way_has_no_finding(function):
    assert changes(function) == set()


def of_a_name_with_two_values(x):
    rows = LIST
    if x:
        rows = MORE
    rows.append(x)


def by_a_helper_with_an_argument(x):
    changes_the_first(LIST, x)


def by_name(x):
    getattr(LIST, "append")(x)  # noqa: B009
    globals()["TABLE"][x] = x


def by_numpy(x):
    np.add(ARRAY, x, out=ARRAY)


def by_a_loop_over_several(x):
    for rows in (LIST, MORE):
        rows.append(x)


#: The page says of these that the check does not see them.
UNSEEN = [
    of_a_name_with_two_values, by_a_helper_with_an_argument, by_name, by_numpy, by_a_loop_over_several,
]  # fmt: skip


@pytest.mark.parametrize("function", UNSEEN)
def test_a_change_that_the_page_names_as_unseen_is_not_found(function):
    assert changes(function) == set()


def test_the_page_names_what_is_unseen():
    page = Path(__file__).parents[2] / "docs/how-to/processes-or-threads.md"
    section = page.read_text().partition("The check does not see")[2].partition("\n## ")[0]
    assert len(re.findall("^- ", section, re.MULTILINE)) == len(UNSEEN)
