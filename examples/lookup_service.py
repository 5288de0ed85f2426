"""Rows get columns of a service, which a function asks for many keys at once, and of a file that is read again."""

import asyncio
import tempfile
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

import headgate as hg

ROOMS = {"s1": "kitchen", "s2": "hall"}
#: The columns that the service adds.
ROOM = pa.schema({"room": pa.string()})


async def rooms(keys: pa.RecordBatch) -> list[dict[str, str]]:
    """Ask the service about different sensors. Those that it does not know are left out."""
    await asyncio.sleep(0.01)  # the service answers
    return [{"sensor": sensor, "room": ROOMS[sensor]} for sensor in keys["sensor"].to_pylist() if sensor in ROOMS]


readings = [
    {"sensor": "s1", "celsius": 20},
    {"sensor": "s2", "celsius": 18},
    {"sensor": "s1", "celsius": 21},
    {"sensor": "s9", "celsius": 5},
]
with tempfile.TemporaryDirectory() as folder:
    limits = Path(folder) / "limits.csv"
    csv.write_csv(pa.table({"room": ["kitchen", "hall"], "limit": [24, 22]}), limits)
    env = hg.StreamEnvironment(parallelism=2)
    known = (
        env.from_source(hg.sources.iterable(readings))
        .lookup(rooms, on="sensor", schema=ROOM, cache_ttl="1 min", concurrency=8)
        .lookup(limits, on="room", refresh="10 min")
        .collect()
    )
for row in known.sort_by([("sensor", "ascending"), ("celsius", "ascending")]).to_pylist():
    print(row)
