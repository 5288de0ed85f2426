"""A whole pipeline, run over rows that are known before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.connectors.frames import as_table, is_frame
from headgate.errors import ConfigError, PlanError
from headgate.testing.between_rows import AdvanceClock, AdvanceWatermark, Restart
from headgate.testing.given_rows import Rows
from headgate.testing.pipeline_harness import PipelineHarness
from headgate.testing.pipeline_under_test import RETURNED, Pipeline

#: Rows, or what stands between them.
Element: TypeAlias = Rows
#: A source's name, None for the only one, and what it is given.
_Step: TypeAlias = tuple[str | None, Element]
_NOTHING: Final = object()


class PipelineResult:
    """What a pipeline made of the rows that it was given.

    `rows` are those of the stream that the pipeline returned, or of its only sink, as dicts; `result["late"]` are those
    of another output: by the name of a sink, or the one under which the pipeline returned the stream. They are in the
    order in which they came; those of different subtasks in one step are in the order of the subtasks. `late_rows` is
    how many rows windows have dropped.
    """

    def __init__(self, tables: Mapping[str, pa.Table], late_rows: int) -> None:
        self._tables = dict(tables)
        self.late_rows = late_rows

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the stream that the pipeline returned, or of its only sink. Raises PlanError where there are
        several."""
        if RETURNED in self._tables:
            return self[RETURNED]
        if len(self._tables) > 1:
            raise PlanError(f"the pipeline has several outputs; write result[name] with one of {self._names()}")
        return self[next(iter(self._tables))]

    def __getitem__(self, output: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(output).to_pylist()
        return rows

    def table(self, output: str) -> pa.Table:
        """The rows of an output as a table."""
        if output not in self._tables:
            raise PlanError(f"the pipeline has no output {output!r}; it has {self._names()}")
        return self._tables[output]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name!r}: {table.num_rows} rows" for name, table in self._tables.items())
        return f"PipelineResult({counts}, late_rows={self.late_rows})"

    def _names(self) -> str:
        return ", ".join(map(repr, self._tables))


def run(
    pipeline: Pipeline,
    given: Iterable[Element] | Mapping[str, Iterable[Element]],
    *,
    parallelism: int = 1,
    restarts: Sequence[Restart] = (),
    timeout: float | str = "60 s",
) -> PipelineResult:
    """Run a pipeline in threads of this process, with your rows in place of what its sources read, to its end.

    `pipeline` is a function that is given a `StreamEnvironment` and builds streams: it ends them with sinks, or returns
    a stream, or several as a dict by name. No source or sink of its own is opened.

    `given` is a list of rows as dicts, with `AdvanceWatermark(time)` and `AdvanceClock(time)` between them as you like;
    a RecordBatch, a frame or a list of dicts in it is read as one batch. With several sources it is a dict of such
    lists by the sources' names, which are given in turn, or a list of pairs (name, element) in an order of your own.

    Each element is given when all tasks have worked off the one before, so every run gives the same rows; only those
    that several subtasks make of one element may meet a later operator in any order. Event time moves only by
    `AdvanceWatermark`, and at the end. `restarts` stops the pipeline before chosen rows, with a checkpoint, and resumes
    it. An element that takes longer than `timeout` raises TimeoutError; what the job fails with
    is raised as it is. Nothing is left running but a function that never returns.

    >>> def totals(env):
    ...     SALES = pa.schema({"shop": pa.string(), "amount": pa.int64()})
    ...     sales = env.from_source(hg.sources.csv("sales/", schema=SALES))
    ...     return sales.key_by("shop").aggregate(final=True, total=hg.sum("amount"))
    >>> sales = [{"shop": "a", "amount": 2}, {"shop": "b", "amount": 1}, {"shop": "a", "amount": 3}]
    >>> result = hg.testing.run(totals, sales, restarts=[hg.testing.Restart(row=2, parallelism=3)])
    >>> hg.testing.assert_same_rows(result.rows, [{"shop": "a", "total": 5}, {"shop": "b", "total": 1}])
    """
    steps = list(_with_restarts(list(_steps(given)), restarts))
    with PipelineHarness(pipeline, parallelism=parallelism, timeout=timeout) as harness:
        for source, element in steps:
            if isinstance(element, Restart):
                harness.restart(element.parallelism)
            elif isinstance(element, AdvanceWatermark):
                harness.advance_watermark(element.time, source=source)
            elif isinstance(element, AdvanceClock):
                harness.advance_clock(element.time)
            else:
                harness.push(element, source=source)
        harness.end()
        return PipelineResult({name: harness.take_table(name) for name in harness.outputs}, harness.late_rows)


def _steps(given: Any) -> Iterator[_Step]:
    """In the order in which they are given."""
    if isinstance(given, Mapping):
        for elements in zip_longest(*map(_elements, given.values()), fillvalue=_NOTHING):
            yield from ((name, each) for name, each in zip(given, elements, strict=True) if each is not _NOTHING)
        return
    for each in _elements(given):
        yield each if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) else (None, each)


def _elements(given: Any) -> Iterable[Element]:
    if isinstance(given, pa.RecordBatch) or is_frame(given):
        return [given]
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise ConfigError(f"run: {given!r} are no rows: give a list of dicts, or a dict of such lists by source")
    return given


def _with_restarts(steps: Sequence[_Step], restarts: Sequence[Restart]) -> Iterator[_Step]:
    """Each before its row; a batch is cut there."""
    waiting, row = sorted(restarts, key=lambda each: each.row), 0
    for source, element in steps:
        rows, begin = _cuttable(element), 0
        while waiting and waiting[0].row < row + len(rows):
            restart = waiting.pop(0)
            if restart.row - row > begin:
                yield source, rows[begin : restart.row - row]
                begin = restart.row - row
            yield None, restart
        yield source, rows[begin:] if begin else element
        row += len(rows)
    for restart in waiting:
        if restart.row > row:
            raise ConfigError(f"{restart}: there are {row} rows")
        yield None, restart


def _cuttable(element: Element) -> Any:
    """Its rows, which can be counted and cut; none for what stands between rows."""
    if isinstance(element, dict):
        return [element]
    if isinstance(element, list | pa.RecordBatch | pa.Table):
        return element
    return as_table(element, "run") if is_frame(element) else []
