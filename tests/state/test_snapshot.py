"""A task's state as bytes and back; what is torn, damaged or foreign is an error."""

from __future__ import annotations

import random
import struct
import zlib

import pyarrow as pa
import pytest

import headgate as hg
from headgate.state.snapshot import KEY_GROUP, LazyTables, Snapshot, decode, encode, in_pieces

TABLE = pa.table(
    {
        KEY_GROUP: pa.array([3, 1, 2, 1], pa.int32()),
        "key": ["a", None, "", "a long one, to be sure"],
        "sum": [1.5, float("inf"), None, -0.0],
        "list": [[1], [], None, [2, 3]],
    }
)
SNAPSHOTS = {
    "window-1": Snapshot({"entries": TABLE, "none": TABLE.slice(0, 0)}, {"progress": [[0, 128, -(1 << 63), 1 << 70]]}),
    "söurce": Snapshot(values={"position": {"offset": 7, "file": "a/b"}}),
    "empty": Snapshot(),
}


def test_what_was_encoded_is_decoded() -> None:
    assert decode(encode(SNAPSHOTS)) == SNAPSHOTS
    assert decode(encode({})) == {}
    big = pa.table({KEY_GROUP: pa.array(range(100_000), pa.int32())})
    chunked = pa.concat_tables([big, big])
    [snapshot] = decode(encode({"x": Snapshot({"t": chunked})})).values()
    assert snapshot.tables["t"] == chunked


def test_captured_tables_are_made_once_when_they_are_asked_for() -> None:
    made = []
    captured = LazyTables({"entries": lambda: made.append(1) or TABLE, "none": lambda: TABLE.slice(0, 0)})
    snapshot = Snapshot(captured)
    assert (list(captured), made) == (["entries", "none"], [])
    assert decode(encode({"x": snapshot}))["x"] == Snapshot({"entries": TABLE, "none": TABLE.slice(0, 0)})
    assert snapshot.of_key_groups(range(4)).tables["entries"] == TABLE
    assert made == [1]


def test_of_key_groups_keeps_values_and_the_rows_of_these_groups() -> None:
    part = SNAPSHOTS["window-1"].of_key_groups(range(2, 4))
    assert part.values == SNAPSHOTS["window-1"].values
    assert part.tables["entries"].column("key").to_pylist() == ["a", ""]
    assert part.tables["none"] == SNAPSHOTS["window-1"].tables["none"]


def test_every_cut_is_an_error() -> None:
    data = encode(SNAPSHOTS)
    for length in range(len(data)):
        with pytest.raises(hg.CheckpointError):
            decode(data[:length])
    with pytest.raises(hg.CheckpointError, match=f"the checksum of its {len(data) + 1} bytes is wrong"):
        decode(data + b"\0")


def test_every_flipped_bit_is_an_error() -> None:
    data = encode(SNAPSHOTS)
    chance = random.Random(7)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << chance.randrange(8)
        with pytest.raises(hg.CheckpointError):
            decode(bytes(damaged))


def test_an_index_that_says_nonsense_is_an_error_too() -> None:
    def with_index(text: bytes) -> bytes:
        rest = struct.pack("<Q", len(text)) + text
        return b"HGSS" + struct.pack("<II", 1, zlib.crc32(rest)) + rest

    assert decode(with_index(b'{"a": {"values": {}, "tables": {}}}')) == {"a": Snapshot()}
    for text in (b"", b"[]", b"{", b'{"a": 1}', b'{"a": {"values": {}, "tables": {"t": [0, 8]}}}', b"\xff"):
        with pytest.raises(hg.CheckpointError, match="the state cannot be read"):
            decode(with_index(text))


def test_errors_distinguish_foreign_bytes_and_versions() -> None:
    with pytest.raises(hg.CheckpointError, match=r"they begin with b'PAR1'"):
        decode(b"PAR1" + bytes(100))
    with pytest.raises(hg.CheckpointError, match="is of version 9, and this Headgate reads version 1"):
        decode(b"HGSS" + struct.pack("<I", 9) + bytes(100))


def test_state_of_another_operator_names_what_differs() -> None:
    ours = Snapshot({"t": TABLE, "u": TABLE}, {"of": {"operator": "window", "every": "5 us"}})
    ours.check_same(ours)
    ours.check_same(Snapshot({"t": TABLE.slice(0, 1)}, {"of": dict(ours.values["of"]), "watermark": 7}))
    other = TABLE.drop_columns(["sum"]).append_column("mean", pa.array([1, 2, 3, 4]))
    theirs = Snapshot({"t": other, "u": other}, {"of": {"operator": "window", "every": "6 us"}})
    with pytest.raises(hg.CheckpointError) as caught:
        ours.check_same(theirs)
    assert caught.value.message == (
        "the state in the checkpoint is that of another operator: every is 6 us there and 5 us here; column 'sum' is "
        "missing there and double here; column 'mean' is int64 there and missing here. Change the operator back, "
        "or start without the checkpoint"
    )
    ours.check_same(Snapshot(values=ours.values))
    with pytest.raises(hg.CheckpointError, match="operator is missing there and window here"):
        ours.check_same(Snapshot(values={"watermark": 7}))


@pytest.mark.parametrize("rows", [0, 1, 1 << 15, (1 << 15) + 1, 100_000])
def test_a_table_in_pieces_is_whole(rows: int) -> None:
    table = in_pieces(rows, lambda part: pa.table({"n": pa.array(range(part.start, part.stop), pa.int64())}))
    assert table["n"].to_pylist() == list(range(rows))
