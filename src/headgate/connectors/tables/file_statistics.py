"""The statistics of a Parquet file that readers of Delta tables use to skip files."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow.parquet as pq


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the number of rows, and by column the number of nulls, and the lowest and highest value.

    Nested columns are left out. Only whole numbers and dates have a lowest and a highest value.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = metadata.schema.column(index).path
        found = [chunk.statistics for chunk in chunks]
        if "." in name or not found or any(item is None or not item.has_null_count for item in found):
            continue
        nulls[name] = sum(item.null_count for item in found)
        limits = [(item.min, item.max) for item in found if item.has_min_max]
        if len(limits) == len([item for item in found if item.num_values]) and limits and _has_limits(limits[0][0]):
            lows[name] = _as_json(min(low for low, _ in limits))
            highs[name] = _as_json(max(high for _, high in limits))
    return {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _has_limits(value: object) -> bool:
    is_date = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return is_date or (isinstance(value, int) and not isinstance(value, bool))


def _as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value
