"""A whole pipeline, run over rows that the test knows in advance."""

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

#: Rows, or an element that a test puts between rows.
Element: TypeAlias = Rows
#: A source's name (None: the only source) and the element for this source.
_Step: TypeAlias = tuple[str | None, Element]
_NOTHING: Final = object()


class PipelineResult:
    """The output of a pipeline in a test.

    `rows` are the rows of the stream that the pipeline returned, or of its only sink, as dicts. `result["late"]` are
    the rows of the output "late": a sink of this name, or a stream that the pipeline returned under this name. Rows are
    in the order of the steps, and within a step in the order of the subtasks. `late_rows` is the number of late rows
    that windows and joins dropped.
    """

    def __init__(self, tables: Mapping[str, pa.Table], late_rows: int) -> None:
        self._tables = dict(tables)
        self.late_rows = late_rows

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the stream that the pipeline returned, or of its only sink, as dicts.

        Raises PlanError if there are several outputs and none is the returned stream.
        """
        if RETURNED in self._tables:
            return self[RETURNED]
        if len(self._tables) > 1:
            raise PlanError(f"the pipeline has several outputs; write result[name] with one of {self._names()}")
        return self[next(iter(self._tables))]

    def __getitem__(self, output: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(output).to_pylist()
        return rows

    def table(self, output: str) -> pa.Table:
        """Return the rows of an output as a table. Raises PlanError if there is no output of this name."""
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
    """Run a pipeline to its end in threads of this process, on your rows in place of the rows of its sources.

    `pipeline` is a function that takes a `StreamEnvironment` and builds streams. The function ends the streams with
    sinks, or returns a stream, or returns several streams as a dict by name. The pipeline's own sources and sinks are
    not opened.

    `given` is a list of rows as dicts. `AdvanceWatermark(time)` and `AdvanceClock(time)` may stand between them. A
    RecordBatch, a frame or a list of dicts in the list is read as one batch. For several sources, give a dict of such
    lists by the sources' names; the sources then take turns. Or give a list of pairs (name, element) in the order that
    you want.

    The sources read an element only when all tasks have finished the element before it, so every run returns the same
    rows. There is one exception: if several subtasks make rows from one element, these rows may reach a later operator
    in any order. Event time moves only by `AdvanceWatermark`, and at the end. For each of `restarts` the pipeline stops
    with a checkpoint before the row, and resumes.

    Raises TimeoutError if an element takes longer than `timeout` (seconds, or a string with a unit). Raises the job's
    own error if the job fails. In either case, no thread is left, except for a function of yours that never returns.

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
    """Yield the steps in the order in which the pipeline gets them."""
    if isinstance(given, Mapping):
        for elements in zip_longest(*map(_elements, given.values()), fillvalue=_NOTHING):
            yield from (step for step in zip(given, elements, strict=True) if step[1] is not _NOTHING)
        return
    for element in _elements(given):
        is_pair = isinstance(element, tuple) and len(element) == 2 and isinstance(element[0], str)
        yield element if is_pair else (None, element)


def _elements(given: Any) -> Iterable[Element]:
    if isinstance(given, pa.RecordBatch) or is_frame(given):
        return [given]
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise ConfigError(
            f"run: {given!r} is not a list of rows: give a list of dicts, or a dict of such lists by source"
        )
    return given


def _with_restarts(steps: Sequence[_Step], restarts: Sequence[Restart]) -> Iterator[_Step]:
    """Insert each restart before its row. A batch that has this row inside is cut in two."""
    waiting, row = sorted(restarts, key=lambda restart: restart.row), 0
    for source, element in steps:
        rows, begin = _countable(element), 0
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
            raise ConfigError(f"{restart}: the test gives only {row} rows; choose a row up to {row}")
        yield None, restart


def _countable(element: Element) -> Any:
    """Return an element's rows in a form that has a length and slices: [] for an element such as AdvanceWatermark."""
    if isinstance(element, dict):
        return [element]
    if isinstance(element, list | pa.RecordBatch | pa.Table):
        return element
    return as_table(element, "run") if is_frame(element) else []
