"""`JoinedColumns`: the columns of a join's result, and how two rows become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.event_times import as_timestamps, unit_of
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.operators.suffixed_names import suffixed_names
from headgate.quantities import duration_text
from headgate.records.canonical import Int64s, as_arrow, check_keyable

WINDOW_COLUMNS = ("window_start", "window_end")
#: The advice on names that both streams have.
_CLASH = (
    "both streams have {names}; give suffix= for the columns of the other stream, or drop or rename them with select"
)


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of a join's result.

    For each column of the result, `sources` has the position of its input column in the left and in the right rows. A
    position is None if this side has no such column. A key column has both, and its value comes from the left row if
    there is one. `window` is the size of a window in microseconds. If it is not 0, the last two columns are the bounds
    of a window.
    """

    schema: pa.Schema
    sources: tuple[tuple[int | None, int | None], ...]
    window: int = 0

    def rows(
        self, left: pa.RecordBatch | None, left_at: Int64s, right: pa.RecordBatch | None, right_at: Int64s,
        starts: Int64s | None = None,
    ) -> pa.RecordBatch:  # fmt: skip
        """Return joined rows: row i has row `left_at[i]` of `left` and row `right_at[i]` of `right`.

        If `left` or `right` is None, the columns of this side are null. `starts` has the start of each row's window.
        """
        count = len(left_at if left is not None else right_at)
        lefts, rights = as_arrow(left_at), as_arrow(right_at)
        arrays = []
        for field, (mine, its) in zip(self.schema, self.sources, strict=False):
            if left is not None and mine is not None:
                arrays.append(left.column(mine).take(lefts))
            elif right is not None and its is not None:
                arrays.append(right.column(its).take(rights))
            else:
                arrays.append(pa.nulls(count, field.type))
        if self.window:
            assert starts is not None
            kind = self.schema.types[-1]
            arrays += [as_timestamps(starts, kind), as_timestamps(starts + self.window, kind)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def joined_columns(
    call: str,
    left: pa.Schema,
    right: pa.Schema,
    keys: Sequence[tuple[str, str]],
    *,
    nullable: tuple[bool, bool] = (False, False),
    suffix: str | None = None,
    hidden: int | None = None,
    window: tuple[int, pa.DataType] | None = None,
) -> JoinedColumns:
    """Return the columns of a result: those of the left rows, then those of the right rows without the keys.

    `keys` has pairs of key columns. `nullable` says for each side whether a result row may lack a row of this side.
    `suffix` is added to the right columns whose name the left rows have. `hidden` is the side whose hidden column the
    result has, or None. `window` has the size and the type of the columns `window_start` and `window_end`. Raises
    PlanError for keys that cannot be compared, for two columns with one name, and for a window that the type cannot
    hold.
    """
    for mine, its in keys:
        check_key(call, mine, left.field(mine).type, its, right.field(its).type)
    matching, right_keys = dict(keys), {its for _, its in keys}
    added = [name for name in right.names if name not in right_keys and name != HIDDEN_COLUMN]
    names = suffixed_names(call, added, suffix, [name for name in left.names if name != HIDDEN_COLUMN], _CLASH)
    fields: list[pa.Field] = []
    sources: list[tuple[int | None, int | None]] = []
    for index, field in enumerate(left):
        if field.name == HIDDEN_COLUMN and hidden != 0:
            continue
        other = right.get_field_index(matching[field.name]) if field.name in matching else None
        is_nullable = field.nullable or (nullable[0] and other is None)
        if other is not None and nullable[0]:
            is_nullable = is_nullable or right.field(other).nullable
        fields.append(field.with_nullable(is_nullable).remove_metadata())
        sources.append((index, other))
    for name, column in zip(names, added, strict=True):
        field = right.field(column)
        fields.append(field.with_name(name).with_nullable(field.nullable or nullable[1]).remove_metadata())
        sources.append((None, right.get_field_index(column)))
    if hidden == 1:
        fields.append(right.field(HIDDEN_COLUMN).remove_metadata())
        sources.append((None, right.get_field_index(HIDDEN_COLUMN)))
    if window is not None:
        fields += _window_fields(call, *window, [field.name for field in fields])
    return JoinedColumns(pa.schema(fields), tuple(sources), 0 if window is None else window[0])


def check_key(call: str, left: str, left_type: pa.DataType, right: str, right_type: pa.DataType) -> None:
    """Raise PlanError if a pair of columns cannot be keys, or if the types differ."""
    check_keyable(left_type)
    if left_type != right_type:
        raise PlanError(
            f"{call}: key column {left!r} is {left_type}, and {right!r} of the other stream is {right_type}; make the "
            "types equal before the join"
        )


def _window_fields(call: str, size: int, kind: pa.DataType, taken: Sequence[str]) -> list[pa.Field]:
    for name in WINDOW_COLUMNS:
        if name in taken:
            raise PlanError(f"{call}: a window adds the column {name!r}, which exists already; rename it with select")
    if size % unit_of(kind):
        raise PlanError(
            f"{call}: event time of type {kind} cannot hold the bounds of windows of {duration_text(size)}; cast it to "
            "timestamp('us')"
        )
    return [pa.field(name, kind, nullable=False) for name in WINDOW_COLUMNS]


NO_ROWS = np.zeros(0, np.int64)
