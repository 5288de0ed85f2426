"""The examples in the docstrings of aggregates, windows and states run, and give the results that a reader expects."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg

SCHEMA = pa.schema(
    {
        "shop": pa.string(),
        "user": pa.string(),
        "item": pa.string(),
        "customer": pa.string(),
        "price": pa.float64(),
        "amount": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
    }
)
#: Three sales of one shop, in the order of their times; the second one has no price.
SALES: list[Any] = [
    {"shop": "a", "item": "tea", "customer": "x", "price": 4.0, "amount": 1, "at": hg.testing.at("10 min")},
    {"shop": "a", "item": "tea", "customer": "y", "price": None, "amount": 2, "at": hg.testing.at("20 min")},
    {"shop": "a", "item": "oil", "customer": "x", "price": 2.0, "amount": 4, "at": hg.testing.at("30 min")},
]
PRICED = [sale for sale in SALES if sale["price"] is not None]


def example_of(thing: object) -> str:
    [example] = re.findall(r"^```python\n(.*?)^```$", inspect.getdoc(thing) or "", re.DOTALL | re.MULTILINE)
    return str(example)


def results(build: Any, sales: list[Any]) -> list[dict[str, Any]]:
    def pipeline(env: Any) -> Any:
        sources = hg.sources.csv("sales/", schema=SCHEMA)
        return build(env.from_source(sources, watermark=hg.Watermark("at")))

    return hg.testing.run(pipeline, sales).rows


@pytest.mark.parametrize(
    ("function", "last_row"),
    [
        (hg.count, {"rows": 3, "priced": 2, "dear": 1}),
        (hg.sum, {"total": 6.0}),
        (hg.min, {"cheapest": 2.0}),
        (hg.max, {"dearest": 4.0}),
        (hg.mean, {"usual": 3.0}),
        (hg.stddev, {"usual": 3.0, "spread": 2.0**0.5}),
        (hg.var, {"variance": 2.0}),
        (hg.first, {"opening": 4.0}),
        (hg.last, {"closing": 2.0}),
        (hg.count_distinct, {"customers": 2}),
        (hg.approx_count_distinct, {"customers": 2}),
        (hg.quantile, {"usual": 2.0, "high": 4.0}),
        (hg.collect_list, {"customers": ["x", "y", "x"]}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_example_of_an_aggregate(function: Any, last_row: dict[str, Any]) -> None:
    rows = results(lambda stream: eval(example_of(function), {"hg": hg, "stream": stream}), SALES)
    assert rows[-1] == {"shop": "a", **last_row}


#: A sale is in 12 of the hopping windows. The last sale, 20 minutes later than the first one, is in 4 further ones.
#: All sales are in one session, with pauses of 10 minutes.
@pytest.mark.parametrize(
    ("function", "count", "windows"), [(hg.tumble, "rows", 1), (hg.hop, "rows", 12 + 4), (hg.session, "clicks", 1)]
)
def test_the_example_of_a_window(function: Any, count: str, windows: int) -> None:
    of_one_user = [{**sale, "user": "u"} for sale in SALES]
    rows = results(lambda stream: eval(example_of(function), {"hg": hg, "stream": stream}), of_one_user)
    assert len(rows) == windows
    assert max(row[count] for row in rows) == len(SALES)


@pytest.mark.parametrize(
    ("thing", "column", "values"),
    [
        (hg.ValueState, "rows", [1, 2]),
        (hg.ListState, "highest", [4.0, 4.0]),
        (hg.MapState, "items", [1, 2]),
        (hg.KeyedProcessFunction, "total", [1, 5]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_example_of_a_process_function(thing: Any, column: str, values: list[Any]) -> None:
    names: dict[str, Any] = {"hg": hg, "pa": pa}
    exec(example_of(thing), names)
    [function] = [value for name, value in names.items() if name[0].isupper()]
    kind = pa.float64() if column == "highest" else pa.int64()
    schema = pa.schema({"shop": pa.string(), column: kind})
    rows = results(lambda stream: stream.key_by("shop").process(function(), schema=schema), PRICED)
    assert rows == [{"shop": "a", column: value} for value in values]


def test_the_example_of_a_side_output() -> None:
    assert repr(hg.SideOutput("refused", {"order": 7})) in (inspect.getdoc(hg.SideOutput) or "")
