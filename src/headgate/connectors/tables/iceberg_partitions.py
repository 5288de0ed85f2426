"""The partitions of an Iceberg table: how rows are divided among files, and what a commit says of each file.

A file has the rows of one partition, and all columns. The name of its folder has the values of the partition. The
library alone would take them from the file's statistics, which lack long texts, and which some tables do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.file_sinks.partition_by import has_text
from headgate.errors import PlanError

_MICROSECONDS: Final = pa.timestamp("us")
_DAY: Final = 86_400_000_000


def _years(times: pa.Array) -> pa.Array:
    return pc.subtract(pc.year(times), 1970)


def _months(times: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(_years(times), 12), pc.subtract(pc.month(times), 1))


def _days(times: pa.Array) -> pa.Array:
    return pc.divide(pc.floor_temporal(times, unit="day").cast(pa.int64()), _DAY)


def _hours(times: pa.Array) -> pa.Array:
    return pc.divide(pc.floor_temporal(times, unit="hour").cast(pa.int64()), _DAY // 24)


#: Iceberg's transforms of times: whole numbers since 1970.
_OF_TIMES: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
    "year": _years, "month": _months, "day": _days, "hour": _hours,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPartition:
    """One field of a partition: its name, the column that it comes from, and Iceberg's name of the transform."""

    name: str
    column: str
    transform: str

    def values(self, column: pa.Array) -> pa.Array:
        """Return the value of each row."""
        if self.transform == "identity":
            return column
        times = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(_MICROSECONDS)
        return _OF_TIMES[self.transform](times)


def partition_names(table: Any) -> Sequence[str]:
    """Return the names of the fields of a table's partitions, without those that were removed."""
    return [field.name for field in table.spec().fields if str(field.transform) != "void"]


def partitions_of(what: str, table: Any, columns: pa.Schema) -> Sequence[IcebergPartition]:
    """Return the partitions of a table with these columns. Raises PlanError for those that the sink cannot write."""
    found = []
    for field in table.spec().fields:
        transform, column = str(field.transform), table.schema().find_column_name(field.source_id)
        if transform == "void":  # a field that was removed
            continue
        if transform != "identity" and transform not in _OF_TIMES:
            raise PlanError(
                f"{what}: the table is partitioned by {transform} of {column!r}; the sink writes to partitions by "
                f"identity, {', '.join(_OF_TIMES)}"
            )
        if column not in columns.names or not has_text(columns.field(column).type):
            raise PlanError(
                f"{what}: the table is partitioned by column {column!r}; only int, string, bool and time columns can"
            )
        found.append(IcebergPartition(name=field.name, column=column, transform=transform))
    return found
