"""Add columns of a small table to every row. Each subtask holds the whole table, so no row crosses the network."""

import pyarrow as pa

import headgate as hg

planes = pa.table({"tailnum": ["N101", "N102"], "seats": [55, 180]})
flights = pa.record_batch({"carrier": ["AA", "AA", "UA", "UA"], "tailnum": ["N101", "N102", "N102", "N999"]})

env = hg.StreamEnvironment(parallelism=2)
seats = (
    env.from_source(hg.sources.iterable([flights]))
    .lookup(planes, on="tailnum", columns=["seats"])
    .key_by("carrier")
    .aggregate(final=True, flights=hg.count(), known_planes=hg.count("seats"), seats=hg.sum("seats"))
    .collect()
)
for row in seats.sort_by("carrier").to_pylist():
    print(row)
