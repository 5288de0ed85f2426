"""The demo's pipeline: flights with their planes' seats, per carrier and hour, and per route and day."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import csv

import headgate as hg
from headgate.connectors.connector import Source
from headgate.demo.data import FlightData, data_errors
from headgate.demo.replay import Replay
from headgate.demo.stall import NAME as STALLED
from headgate.demo.stall import SlowSubtask

NULL = "NA"
CARRIER_HOURS = "carrier_hours"
ROUTE_DAYS = "route_days"

FLIGHTS = pa.schema(
    {
        "event_time": pa.timestamp("us", "UTC"),
        "carrier": pa.string(),
        "tailnum": pa.string(),
        "origin": pa.string(),
        "dest": pa.string(),
        "dep_time": pa.int64(),
        "dep_delay": pa.int64(),
    }
)
PLANES = pa.schema({"tailnum": pa.string(), "seats": pa.int64()})


def build(
    env: hg.StreamEnvironment,
    data: FlightData,
    output: Path,
    speedup: float | None = None,
    stall: SlowSubtask | None = None,
) -> None:
    """Add the pipeline to `env`. It writes Parquet files to `carrier_hours` and `route_days` in `output`.

    With a stall, `route_days` has a source of its own: the two halves then share no task, only the connections.
    """
    flights = _with_seats(env, data, speedup, "")
    hours = (
        flights.key_by("carrier")
        .window(hg.tumble("1 h"))
        .aggregate(
            flights=hg.count(),
            mean_delay=hg.mean("dep_delay"),
            worst_delay=hg.max("dep_delay"),
            seats=hg.sum("seats"),
            known_planes=hg.count("seats"),
        )
        .name(CARRIER_HOURS)
        .with_columns(unknown_planes="flights - known_planes")
        .name("unknown_planes")
    )
    if stall is not None:
        hours = hours.map_batches(stall, schema=hours.schema).name(STALLED)
        flights = _with_seats(env, data, speedup, "_too")
    hours.sink_to(hg.sinks.parquet(output / CARRIER_HOURS)).name(f"{CARRIER_HOURS}.parquet")
    (
        flights.key_by("origin", "dest")
        .window(hg.tumble("1 d"))
        .aggregate(flights=hg.count(), seats=hg.sum("seats"))
        .name(ROUTE_DAYS)
        .sink_to(hg.sinks.parquet(output / ROUTE_DAYS))
        .name(f"{ROUTE_DAYS}.parquet")
    )


def _with_seats(env: hg.StreamEnvironment, data: FlightData, speedup: float | None, suffix: str) -> hg.DataStream:
    """Return the flights that departed, with the seats of their planes. Names of operators end with `suffix`."""
    return (
        env.from_source(source(data, speedup), watermark=hg.Watermark("event_time", out_of_orderness="1 h"))
        .name(f"flights{suffix}")
        .filter("dep_time is not null")
        .name(f"departed{suffix}")
        .lookup(planes(data), on="tailnum", columns=["seats"])
        .name(f"with_seats{suffix}")
    )


def source(data: FlightData, speedup: float | None = None) -> Source:
    """Return the flights in the order of event time: as fast as possible, or `speedup` times as fast as they flew."""
    flights = hg.sources.csv(data.days / "*.csv", schema=FLIGHTS, null_values=[NULL])
    return flights if speedup is None else Replay(flights, "event_time", data.first_event(), speedup)


def planes(data: FlightData) -> pa.Table:
    """Return the tail number and the number of seats of each plane."""
    options = csv.ConvertOptions(
        column_types=PLANES, include_columns=PLANES.names, null_values=[NULL], strings_can_be_null=True
    )
    with data_errors(data.planes, f"needs columns {', '.join(PLANES.names)}"):
        return csv.read_csv(data.planes, convert_options=options)
