"""The demo's input: how it is sorted and cached, and the errors of a damaged copy."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.demo import data
from headgate.errors import SourceError

HEADER = "carrier,tailnum,minute,time_hour\n"
UNSORTED = [
    "UA,N2,10,2013-01-02T05:00:00Z",
    "AA,N1,5,2013-01-01T23:00:00Z",
    "B6,NA,59,2013-01-01T10:00:00Z",
    "DL,N3,5,2013-01-01T23:00:00Z",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def user_copy(folder: Path, text: str, zipped: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "planes.csv").write_text("tailnum,seats\nN1,100\n")
    if zipped:
        with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
            archive.writestr("flights.csv", text)
    else:
        (folder / "flights.csv").write_text(text)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_flights_are_sorted_by_event_time_into_one_file_per_day(tmp_path: Path, zipped: bool) -> None:
    text = HEADER + "\n".join(UNSORTED) + "\n"
    prepared = data.find(user_copy(tmp_path / "copy", text, zipped))
    days = {file.name: file.read_text().splitlines()[1:] for file in sorted(prepared.days.iterdir())}
    assert days == {
        "2013-01-01.csv": [
            "2013-01-01T10:59:00Z,B6,NA,59,2013-01-01T10:00:00Z",
            "2013-01-01T23:05:00Z,AA,N1,5,2013-01-01T23:00:00Z",
            "2013-01-01T23:05:00Z,DL,N3,5,2013-01-01T23:00:00Z",
        ],
        "2013-01-02.csv": ["2013-01-02T05:10:00Z,UA,N2,10,2013-01-02T05:00:00Z"],
    }
    assert prepared.flights.read_text() == text
    assert prepared.planes == tmp_path / "copy" / "planes.csv"
    assert prepared.rows == 4
    assert prepared.first_event() == datetime(2013, 1, 1, 10, 59, tzinfo=UTC)


def test_the_cache_is_made_once_and_follows_the_content(tmp_path: Path, cache: Path) -> None:
    copy = user_copy(tmp_path / "copy", HEADER + UNSORTED[0] + "\n")
    first = data.find(copy)
    stamp = first.days.stat().st_mtime_ns
    assert data.find(copy) == first
    assert first.days.stat().st_mtime_ns == stamp
    user_copy(tmp_path / "copy", HEADER + "\n".join(UNSORTED[:2]) + "\n")
    assert data.find(copy).rows == 2
    assert len(list(cache.iterdir())) == 2


def test_a_failed_preparation_leaves_nothing_in_the_cache(tmp_path: Path, cache: Path) -> None:
    copy = user_copy(tmp_path / "copy", "carrier,minute\nUA,1\n")
    with pytest.raises(SourceError, match=r"flights\.csv: needs columns time_hour .* and minute: .*time_hour"):
        data.find(copy)
    assert list(cache.iterdir()) == []


def test_the_error_of_a_wrong_copy_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"flights\.csv: no such file; the folder must hold"):
        data.find(tmp_path)
    copy = user_copy(tmp_path / "copy", HEADER + "UA,N1,NA,2013-01-01T10:00:00Z\n")
    with pytest.raises(SourceError, match=r"flights\.csv: needs columns .* minute: .*'NA'"):
        data.find(copy)
    user_copy(copy, HEADER + "UA,N1\n")
    with pytest.raises(SourceError, match=r"flights\.csv: cannot be used: CSV parse error: Expected 4 columns, got 2"):
        data.find(copy)


def damaged(folder: Path, kind: str) -> str:
    """Damage the zip of flights. Return the expected message."""
    copy = user_copy(folder, HEADER + "\n".join(UNSORTED * 20), zipped=True) / "flights.csv.zip"
    content = copy.read_bytes()
    if kind == "no zip":
        copy.write_bytes(b"PK, but nothing else")
        return "File is not a zip file"
    if kind == "cut off":
        copy.write_bytes(content[:40])
        return "File is not a zip file"
    if kind == "other bytes":
        copy.write_bytes(content[:60] + bytes(20) + content[80:])
        return "Bad CRC-32"
    with zipfile.ZipFile(copy, "w") as archive:
        archive.writestr("vuelos.csv", HEADER)
    return "no item named 'flights.csv'"


@pytest.mark.parametrize("kind", ["no zip", "cut off", "other bytes", "another file"])
def test_the_error_of_a_damaged_zip_names_the_file(tmp_path: Path, cache: Path, kind: str) -> None:
    message = damaged(tmp_path / "copy", kind)
    with pytest.raises(SourceError, match=rf"copy/flights\.csv\.zip: cannot be used: .*{message}"):
        data.find(tmp_path / "copy")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "holds no flights"),
        ("", "cannot be used: Empty CSV file"),
        (HEADER + '"A,A",N1,5,2013-01-01T23:00:00Z\n', "cannot be used: CSV values may not contain"),
        ("carri\xe9r,minute,time_hour\nAA,5,2013-01-01T23:00:00Z\n", "cannot be used: .*codec can't decode"),
    ],
)
def test_the_error_of_unusable_flights_names_the_file(tmp_path: Path, cache: Path, text: str, message: str) -> None:
    copy = user_copy(tmp_path / "copy", "")
    (copy / "flights.csv").write_text(text, encoding="latin-1")
    with pytest.raises(SourceError, match=rf"copy/flights\.csv: {message}"):
        data.find(copy)
    assert list(cache.iterdir()) == []


def test_the_error_of_a_cache_without_write_permission_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = user_copy(tmp_path / "copy", HEADER + UNSORTED[0])
    monkeypatch.setenv("HEADGATE_CACHE", str(copy / "planes.csv" / "cache"))
    with pytest.raises(SourceError, match="planes.csv/cache: prepared files .* HEADGATE_CACHE names: .*directory"):
        data.find(copy)
