"""The tasks of `rows` on Bytewax. The Python of Bytewax's own environment runs this file, so it imports nothing of
Headgate.

It reads requests from standard input, one JSON line for each run: `{"task": name, "rows": n, "timed": true}`. It
answers on standard output with `{"seconds": s}`, processor time, or with `{"error": text}`. The rows are Python objects
before the time begins, so Bytewax does not pay for making them.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

#: The rows of a batch, and how many different batches there are.
BATCH, BATCHES, KEYS = 1000, 50, 1000
Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row(number: int, timed: bool) -> Row:
    """Return the same row as `numbered_rows` of the case makes."""
    key = number * 2654435761 % (1 << 32) % KEYS
    values: Row = {"key": key, "value": float(number % 1000), "name": f"name {key}"}
    return {**values, "at": EPOCH + timedelta(milliseconds=number)} if timed else values


class Batches(StatelessSourcePartition[Row]):
    def __init__(self, batches: list[list[Row]], count: int) -> None:
        self._batches, self._count, self._next = batches, count, 0

    def next_batch(self) -> list[Row]:
        if self._next == self._count:
            raise StopIteration
        self._next += 1
        return self._batches[self._next % len(self._batches)]


class Rows(DynamicSource[Row]):
    def __init__(self, batches: list[list[Row]], count: int) -> None:
        self._batches, self._count = batches, count

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Batches:
        return Batches(self._batches, self._count)


class Dropped(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        pass


class Drop(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Dropped:
        return Dropped()


def changed(values: Row) -> Row:
    return {**values, "value": values["value"] * 2.0}


def with_total(total: float | None, values: Row) -> tuple[float, Row]:
    total = (total or 0.0) + values["value"]
    return total, {"key": values["key"], "total": total}


def execute(task: str, rows: int, timed: bool) -> float:
    batches = [
        [row(number, timed) for number in range(begin, begin + BATCH)] for begin in range(0, BATCH * BATCHES, BATCH)
    ]
    flow = Dataflow("rows")
    stream = op.input("in", flow, Rows(batches, rows // BATCH))
    if task == "map":
        result: Any = op.map("map", stream, changed)
    elif task == "flat_map":
        result = op.flat_map("flat_map", stream, lambda values: [changed(values)])
    else:
        keyed = op.key_on("key", stream, lambda values: str(values["key"]))
        result = op.stateful_map("sum", keyed, with_total)
    op.output("out", result, Drop())
    began = time.process_time()
    run_main(flow)
    return time.process_time() - began


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, object] = {"seconds": execute(request["task"], request["rows"], request["timed"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
