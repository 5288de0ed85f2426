"""A job with state of every kind, and the main module of a process that resumes forged checkpoints of it.

For each line of standard input, `[checkpoint, parallelism]`, it answers with a line: what came of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import headgate as hg
from headgate.connectors.connector import ReaderContext, Source, SourceReader

ROWS = 400
SCHEMA = pa.schema({"key": pa.int64(), "value": pa.string(), "at": pa.timestamp("us", "UTC")})
#: How long a resumed job may take, seconds; it has some 2,000 rows.
PATIENCE = 60.0


def rows(start: int, n: int) -> pa.RecordBatch:
    numbers = range(start, start + n)
    values = ["x" * (number % 40) for number in numbers]
    return pa.record_batch([[n % 17 for n in numbers], values, [n * 1000 for n in numbers]], schema=SCHEMA)


class Gated(Source):
    """Half of a source's batches until `gate` is there."""

    def __init__(self, source: Source, gate: Path) -> None:
        self._source, self._gate = source, gate
        self.schema = source.schema

    def prepare(self) -> None:
        self._source.prepare()

    def prepared(self) -> Any:
        return self._source.prepared()

    def restore(self, prepared: Any) -> None:
        self._source.restore(prepared)

    def check_position(self, position: Any) -> None:
        self._source.check_position(position)

    def reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(self._source.reader(context), self._gate, context)


class _Reader(SourceReader):
    def __init__(self, reader: SourceReader, gate: Path, context: ReaderContext) -> None:
        self._reader, self._gate, self._clock = reader, gate, context.clock
        self._rows = 0

    def read(self) -> pa.RecordBatch | None:
        batch = self._reader.read() if self._rows < ROWS // 4 or self._gate.exists() else None
        self._rows += 0 if batch is None else batch.num_rows
        self.finished, self.split = self._reader.finished, self._reader.split
        return batch

    def next_read(self) -> float | None:
        return self._clock() + 0.005

    def position(self) -> Any:
        return self._reader.position()

    def close(self) -> None:
        self._reader.close()


class Keep(hg.KeyedProcessFunction):
    """Has values, lists, maps and timers of every key."""

    seen = hg.ValueState(pa.int64())
    last = hg.ListState(pa.list_(pa.string()), ttl="1 h")
    lengths = hg.MapState(pa.string(), pa.struct({"n": pa.int64()}), ttl="1 h")
    nested = hg.ListState(pa.large_list(pa.decimal128(9, 2)))

    def process_element(self, row: dict[str, Any], context: Any) -> Any:
        value = row["value"] or ""
        self.seen.update(self.seen.value(0) // 2 + 1)
        if len(self.last.get()) > 5:
            self.last.clear()
        self.last.add([value])
        self.lengths.put(value, {"n": len(value)})
        self.nested.update([[1, None]])
        context.register_event_time_timer(row["at"])
        yield row

    def on_timer(self, time: Any, context: Any) -> Any:
        yield from ()


def sources(folder: Path) -> list[Source]:
    made = folder / "in"
    if not made.exists():
        made.mkdir()
        lines = [f"{row['key']},{row['value']},{row['at'].isoformat()}\n" for row in rows(0, ROWS).to_pylist()]
        (made / "a.csv").write_text("key,value,at\n" + "".join(lines))
        pq.write_table(pa.table(rows(0, ROWS)), made / "a.parquet", row_group_size=50)
    return [
        hg.sources.csv(made / "a.csv", schema=SCHEMA, split_size=2000),
        hg.sources.parquet(made / "a.parquet", split_size=1000, batch_rows=20),
        hg.sources.generate(rows, rows=ROWS, batch_rows=20),
        hg.sources.iterable([rows(start, 20) for start in range(0, ROWS, 20)]),
        hg.sources.iterable(
            lambda subtask, of: (rows(s, 20) for s in range(subtask * 20, ROWS, of * 20)), schema=SCHEMA
        ),
    ]


def build(folder: Path, parallelism: int, *, slow: Any = None) -> hg.StreamEnvironment:
    """Build a job: the union of all sources, a function with state, then windows and running aggregates.

    `slow` is called with each batch that leaves the function with state.
    """
    config = hg.Config(
        checkpoint_dir=folder / "checkpoints", checkpoint_interval="100 ms" if slow else "1 h",
        unaligned=True, segment_size=4096, message_size=4096, max_parallelism=16,
        restart=hg.restart.none(),
    )  # fmt: skip
    env = hg.StreamEnvironment(
        parallelism=parallelism, config=config, deployment=hg.LocalDeployment(1, processes=False)
    )
    streams = [
        env.from_source(Gated(source, folder / "open"), watermark=hg.Watermark("at", out_of_orderness="1 s"))
        for source in sources(folder)
    ]
    stream = streams[0].union(*streams[1:])
    kept = stream.key_by("key").process(Keep(), schema=stream.schema)
    kept = kept.map_batches(slow or (lambda batch: batch), schema=stream.schema)
    every = {
        "n": hg.count(), "first": hg.first("value"), "least": hg.min("value"), "all": hg.collect_list("value"),
        "some": hg.count_distinct("value"), "mean": hg.mean("key"), "last_at": hg.max("at"),
    }  # fmt: skip
    kept.key_by("key").window(hg.hop(0.2, every=0.1)).aggregate(**every).sink_to(hg.sinks.null())
    kept.key_by("value").aggregate(final=True, **every).sink_to(hg.sinks.parquet(folder / "out"))
    return env


def outcome(checkpoint: str, parallelism: int) -> str:
    """`done`, `refused: ...`, or what should not have come of it."""
    job = build(Path(sys.argv[1]), parallelism).execute_async(resume=checkpoint, allow_duplicates=True)
    try:
        job.wait(PATIENCE)
        return "done"
    except TimeoutError:
        job.cancel()
        return "hangs"
    except hg.HeadgateError as error:
        known = "Traceback" not in error.message and "unexpected" not in error.message
        return f"{'refused' if known else 'fails'}: {type(error).__name__}: {error}"


def main() -> None:
    for line in sys.stdin:
        checkpoint, parallelism = json.loads(line)
        try:
            said = outcome(checkpoint, parallelism)
        except hg.HeadgateError as error:  # before it starts
            said = f"refused: {type(error).__name__}: {error}"
        except BaseException as error:
            said = f"fails: {type(error).__name__}: {error}"
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
