"""JSON lines: a JSON object for each row, on a line of its own."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.json_text import check_json_types, json_texts
from headgate.errors import PlanError

#: The rows that become text at the same time.
_ROWS: Final = 1 << 14


class JsonLinesFormat:
    """The format of JSON lines, in UTF-8. Numbers keep all digits, times are ISO 8601, and nulls are written."""

    extension = "jsonl"

    def open(self, stream: Any, schema: pa.Schema) -> _JsonLinesWriter:
        try:
            check_json_types(schema)
        except PlanError as error:
            raise pa.ArrowInvalid(error.message) from None
        return _JsonLinesWriter(stream)


class _JsonLinesWriter:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write_table(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_ROWS):
            lines = pc.binary_join_element_wise(json_texts(batch), pa.scalar("\n"), "")
            whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
            self._stream.write(pc.binary_join(whole, "")[0].as_buffer())

    def close(self) -> None:
        """Do nothing: the format has no end."""
