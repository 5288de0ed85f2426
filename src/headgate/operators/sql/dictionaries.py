"""Evaluates expressions on columns of texts with dictionaries: once for each text, and not for each row.

An expression may read other columns, too. Then this holds for each of its parts that reads only one such column, for
example for `lower(channel) = 'apple'` in a `case`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.errors import DataError
from headgate.operators.sql.expressions import Expression
from headgate.operators.sql.sql_eval import Column, SqlNode, as_column, nodes_of
from headgate.records.arrow import has_dictionaries, is_text, plain_batch, plain_schema


class TextExpressions:
    """Expressions on batches whose columns of texts may have dictionaries. One thread uses the object."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._expressions = expressions
        names = frozenset[str]().union(*(each.columns for each in expressions))
        #: The names of the columns with the values of parts begin with this: they are longer than all other names.
        self._prefix = "_" * (1 + max(map(len, names), default=0))
        #: The columns of texts that parts of the expressions read, by name.
        self._texts: dict[str, _Texts] = {}
        self._without_parts = [replace(each, root=_replaced(each.root, self._part_of)) for each in expressions]
        #: The columns that the expressions read beside the parts.
        self._others = frozenset[str]().union(*(each.columns for each in self._without_parts))

    def evaluate(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return each expression's value for each row. Raises DataError if an integer or a decimal overflows."""
        if has_dictionaries(batch):
            try:
                wide = self._with_parts(batch)
                return [each.evaluate(wide) for each in self._without_parts]
            except (DataError, pa.ArrowInvalid):  # a text of the dictionary may be in no row of this batch
                batch = plain_batch(batch, plain_schema(batch.schema))
        return [each.evaluate(batch) for each in self._expressions]

    def _with_parts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        others = batch.select([name for name in batch.schema.names if name in self._others])
        columns = dict(zip(others.schema.names, plain_batch(others, plain_schema(others.schema)).columns, strict=True))
        for name, texts in self._texts.items():
            columns |= texts.values(batch.column(name))
        columns = columns or {batch.schema.names[0]: batch.column(0)}  # constants alone need the number of rows
        return pa.RecordBatch.from_pydict(columns)

    def _part_of(self, node: SqlNode) -> SqlNode | None:
        """Return the column with the node's values, if the node computes something from one column of texts."""
        read = {each for each in nodes_of(node) if isinstance(each, Column)}
        if isinstance(node, Column) or len(read) != 1:
            return None
        (column,) = read
        if not is_text(column.type):
            return None
        parts = self._texts.setdefault(column.name, _Texts(column.name)).parts
        name = f"{self._prefix}{len(parts)} of {column.name}"
        return Column(parts.setdefault(node, name), node.type)


class _Texts:
    """A column of texts, and the nodes that compute something from it. `values` keeps what they computed for the last
    dictionary."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: The name of the column with the node's values, by node.
        self.parts: dict[SqlNode, str] = {}
        self._dictionary: pa.Array | None = None
        self._computed: dict[str, pa.Array] = {}

    def values(self, column: pa.Array) -> dict[str, pa.Array]:
        """Return the values of each node for each row of the column."""
        if not pa.types.is_dictionary(column.type):
            return self._compute(column)
        dictionary, places = column.dictionary, column.indices
        if self._dictionary is None or not dictionary.equals(self._dictionary):
            # The last value is that of null, which need not be null.
            self._computed = self._compute(pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)]))
            self._dictionary = dictionary
        places = places.cast(pa.int32()).fill_null(len(dictionary)) if places.null_count else places
        return {name: values.take(places) for name, values in self._computed.items()}

    def _compute(self, texts: pa.Array) -> dict[str, pa.Array]:
        batch = pa.RecordBatch.from_arrays([texts], names=[self._name])
        return {name: as_column(node.evaluate(batch), len(texts)) for node, name in self.parts.items()}


def _replaced(part: Any, change: Callable[[SqlNode], SqlNode | None]) -> Any:
    """Return a node or a tuple in which those nodes are replaced for which `change` returns another one."""
    if isinstance(part, tuple | list):
        return type(part)(_replaced(each, change) for each in part)
    if not (isinstance(part, SqlNode) and is_dataclass(part)):
        return part
    other = change(part)
    if other is not None:
        return other
    given = [each.name for each in fields(part) if each.init]
    return replace(part, **{name: _replaced(getattr(part, name), change) for name in given})
