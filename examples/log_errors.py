"""Count each error in log files: read plain lines, and split them with a regular expression."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg

ERRORS = pa.schema({"host": pa.string(), "message": pa.string()})


def parse(batch: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.extract_regex(batch["value"], r"^(?P<host>\S+) ERROR (?P<message>.*)$")
    return pa.RecordBatch.from_struct_array(parts.drop_null()).cast(ERRORS)


with tempfile.TemporaryDirectory() as folder:
    Path(folder, "a.log").write_text("a INFO ready\na ERROR disk full\na ERROR disk full\n")
    Path(folder, "b.log").write_text("b INFO ready\nb ERROR no route\n")

    env = hg.StreamEnvironment(parallelism=2)
    errors = env.from_source(hg.sources.text(f"{folder}/*.log")).map_batches(parse, schema=ERRORS)
    totals = errors.key_by("host", "message").aggregate(final=True, times=hg.count())
    print(totals.collect().sort_by("host").to_pylist())
