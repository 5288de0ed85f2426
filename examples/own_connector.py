"""A source and a sink of your own, by functions: rows of a web service into a database, each exactly once."""

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate as hg

READINGS = pa.schema({"device": pa.string(), "number": pa.int64(), "level": pa.int64()})
#: Stands for a web service that has readings by device.
SERVICE = {"a": [4, 5], "b": [6]}


def ask(device: str, position: int | None) -> Any:
    """Return the readings after `position`, at most one per call, and the new position. None: there are no more."""
    number = position or 0
    levels = SERVICE[device][number : number + 1]
    if not levels:
        return None
    return [{"device": device, "number": number, "level": levels[0]}], number + 1


folder = Path(tempfile.mkdtemp())


def write(readings: pa.Table, _info: hg.BatchInfo) -> list[list[Any]]:
    """Return the rows themselves: they become a part of the checkpoint. Many rows would go to a file."""
    return [list(row.values()) for row in readings.to_pylist()]


def commit(written: list[list[list[Any]]], _checkpoint: int) -> None:
    """Insert the rows. A repeated call changes nothing, because device and number are the key."""
    with sqlite3.connect(folder / "levels.db") as database:
        for rows in written:
            database.executemany("insert or ignore into levels values (?, ?, ?)", rows)


with sqlite3.connect(folder / "levels.db") as database:
    database.execute("create table levels (device text, number integer, level integer, primary key (device, number))")

env = hg.StreamEnvironment(config=hg.Config(checkpoint_dir=folder / "checkpoints", checkpoint_interval="100 ms"))
readings = env.from_source(hg.sources.poll(ask, READINGS, splits=["a", "b"], interval="100 ms", bounded=True))
readings.sink_to(hg.sinks.two_phase(write, commit))
env.execute("readings")

with sqlite3.connect(folder / "levels.db") as database:
    print(database.execute("select * from levels order by device, number").fetchall())
