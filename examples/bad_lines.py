"""Put lines that cannot be read into a side output, with their file and line number. Otherwise they fail the job."""

import tempfile
from pathlib import Path

import pyarrow as pa

import headgate as hg

TRIPS = pa.schema({"city": pa.string(), "km": pa.int64()})

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "trips.jsonl")
    path.write_text('{"city": "Rome", "km": 7}\n{"city": "Oslo", "km": "far"}\n{"city": "Rome", "km": 5}\n')
    env = hg.StreamEnvironment()
    trips = env.from_source(hg.sources.json_lines(path, schema=TRIPS))
    bad = hg.sinks.collect()
    trips.side_output("bad").sink_to(bad)  # without this line the job fails at line 2
    print(trips.key_by("city").aggregate(final=True, km=hg.sum("km")).collect().to_pylist())
    for line in bad.to_table().to_pylist():
        print(f"{Path(line['file']).name}, line {line['line']}: {line['error']}")
