"""Columns with dictionaries come as their values: in the stream's schema, to functions and at every sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg

WORDS = ["weir", "lock", "weir", None, "lock", "weir"]
ENCODED = pa.record_batch({"n": pa.array(range(6)), "word": pa.array(WORDS).dictionary_encode()})
PLAIN = pa.schema({"n": pa.int64(), "word": pa.string()})


def encoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A function that wants plain values and gives a dictionary again."""
    assert batch.schema == PLAIN
    return pa.record_batch([batch["n"], batch["word"].dictionary_encode()], schema=ENCODED.schema)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "way",
    [
        lambda stream: stream,
        lambda stream: stream.rebalance(),
        lambda stream: stream.map_batches(encoded, schema=ENCODED.schema),
        lambda stream: stream.rebalance().map_batches(encoded, schema=PLAIN),
    ],
    ids=["chained", "distributed", "function", "function behind an exchange"],
)
@pytest.mark.parametrize("source", ["iterable", "parquet"])
def test_dictionary_columns(way: Callable[[hg.DataStream], hg.DataStream], source: str, tmp_path: Path) -> None:
    env = hg.StreamEnvironment(parallelism=2)
    if source == "iterable":
        stream = way(env.from_source(hg.sources.iterable([ENCODED])))
    else:
        pq.write_table(pa.Table.from_batches([ENCODED]), tmp_path / "words.parquet")
        stream = way(env.from_source(hg.sources.parquet(tmp_path / "words.parquet")))
    assert stream.schema == PLAIN
    stream.sink_to(hg.sinks.parquet(tmp_path / "parquet"))
    stream.sink_to(hg.sinks.csv(tmp_path / "csv"))
    stream.sink_to(hg.sinks.parquet(tmp_path / "parts", partition_by="word"))
    collected = stream.collect().sort_by("n")
    assert collected.schema == PLAIN
    assert collected["word"].to_pylist() == WORDS
    assert pq.read_table(tmp_path / "parquet").sort_by("n") == collected
    assert pq.read_table(tmp_path / "parts").num_rows == len(WORDS)
