"""Count words per minute of event time, with a function of rows, a key and a window."""

from datetime import datetime
from typing import Any

import pyarrow as pa

import headgate as hg

lines = pa.record_batch(
    {
        "said_at": [datetime(2024, 5, 1, 12, 0, 10), datetime(2024, 5, 1, 12, 0, 50), datetime(2024, 5, 1, 12, 1, 5)],
        "line": ["the water and the gate", "the gate is open", "the canal is full"],
    },
    schema=pa.schema({"said_at": pa.timestamp("us"), "line": pa.string()}),
)
WORDS = pa.schema({"said_at": pa.timestamp("us"), "word": pa.string()})


def words(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"said_at": row["said_at"], "word": word} for word in row["line"].split()]


def counts(env: hg.StreamEnvironment) -> hg.DataStream:
    return (
        env.from_source(hg.sources.iterable([lines]), watermark=hg.Watermark("said_at", out_of_orderness="10 s"))
        .flat_map(words, schema=WORDS)
        .key_by("word")
        .window(hg.tumble("1 min"))
        .aggregate(times=hg.count())
    )


if __name__ == "__main__":
    order = [("window_start", "ascending"), ("times", "descending"), ("word", "ascending")]
    for row in counts(hg.StreamEnvironment(parallelism=2)).collect().sort_by(order).to_pylist():
        print(f"{row['window_start']:%H:%M}  {row['word']:<6} {row['times']}")
