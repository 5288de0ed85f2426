"""Read a folder as a source without end, while other programs put files into it."""

import tempfile
from pathlib import Path

import pyarrow as pa

import headgate as hg

TRIPS = pa.schema({"city": pa.string(), "km": pa.int64()})

with tempfile.TemporaryDirectory() as folder:
    env = hg.StreamEnvironment()
    trips = env.from_source(hg.sources.files(folder, format="csv", schema=TRIPS, watch=True, interval="50 ms"))
    hidden = Path(folder, "_trips.csv")  # names that begin with _ are not read
    hidden.write_text("city,km\nRome,7\nOslo,3\n")
    hidden.rename(Path(folder, "trips.csv"))  # now the whole file is there
    print(trips.collect(limit=2).to_pylist())  # cancels the job when it has two rows
