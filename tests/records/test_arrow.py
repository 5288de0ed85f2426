"""Record batches as checked Arrow messages: every type of interest, sliced, empty and null; and what is refused."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headgate.compat import concat_batches
from headgate.errors import ExchangeError
from headgate.records.arrow import BatchCodec, describe_difference, plain_schema
from headgate.records.canonical import as_arrow
from tests.arrow_types import array_of, decimal32, decimal64, extension, runs

WORDS = pa.array(["a", "b", None, ""]).dictionary_encode()
MOMENTS = [datetime(2013, 1, 1, 5, 15), None, datetime(1969, 12, 31), datetime(2262, 4, 11)]
LONG = "longer than what a view holds inline"

KINDS, PLACES = pa.array([0, 1, 0, 1], pa.int8()), pa.array([0, 0, 1, 1], pa.int32())

COLUMNS = {
    "int8": pa.array([1, None, -128, 127], pa.int8()),
    "int64": pa.array([1, None, -(1 << 63), (1 << 63) - 1]),
    "uint64": pa.array([0, None, 1, (1 << 64) - 1], pa.uint64()),
    "float64": pa.array([0.0, None, float("-inf"), -0.0]),
    "bool": pa.array([True, None, False, True]),
    "string": pa.array(["", None, "ä€😀", LONG]),
    "large_string": pa.array(["", None, "ä€😀", LONG], pa.large_string()),
    "binary": pa.array([b"", None, b"\x00\xff", b"x"]),
    "fixed binary": pa.array([b"abc", None, b"\0\0\0", b"xyz"], pa.binary(3)),
    "decimal128": pa.array([Decimal("1.23"), None, Decimal("-9999999.99"), Decimal(0)], pa.decimal128(38, 2)),
    "decimal256": pa.array([Decimal(10**60), None, Decimal(-1), Decimal(0)], pa.decimal256(76, 0)),
    "date": pa.array([date(2013, 1, 1), None, date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp us": pa.array(MOMENTS, pa.timestamp("us")),
    "timestamp with zone": pa.array(MOMENTS, pa.timestamp("us", "America/New_York")),
    "timestamp ns UTC": pa.array(MOMENTS, pa.timestamp("ns", "UTC")),
    "duration": pa.array([timedelta(1), None, timedelta(0), timedelta(-1)]),
    "null": pa.nulls(4),
    "list": pa.array([[1, None], None, [], [2, 3, 4]]),
    "large_list": pa.array([["a"], None, [], ["", None]], pa.large_list(pa.string())),
    "fixed list": pa.array([[1, 2], None, [3, 4], [None, 6]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": ""}, {"a": 3, "b": None}]),
    "map": pa.array([[("k", 1)], None, [], [("a", None), ("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "float16": array_of([1.5, None, 0.0, -2.0], pa.float16()),
    "decimal32": pa.array([Decimal("1.5"), None, Decimal(0), Decimal(-1)], decimal32(5, 1)),
    "decimal64": pa.array([Decimal("1.5"), None, Decimal(0), Decimal(-1)], decimal64(12, 1)),
    "date64": pa.array([date(2013, 1, 1), None, date(1970, 1, 1), date(9999, 12, 31)], pa.date64()),
    "time32": pa.array([0, None, 1, 86399], pa.time32("s")),
    "time64": pa.array([0, None, 1, 86399], pa.time64("ns")),
    "interval": pa.array([pa.MonthDayNano([1, -2, 3]), None, pa.MonthDayNano([0, 0, 0]), None]),
    **extension("uuid", pa.array([b"0123456789abcdef", None, bytes(16), b"f" * 16], pa.binary(16))),
    **extension("json_", pa.array(["{}", None, "1", "[2]"])),
    **extension("bool8", pa.array([1, None, 0, 1], pa.int8())),
    "sparse union": pa.UnionArray.from_sparse(KINDS, [pa.array([1, 0, 2, 0]), pa.array(["", "a", "", None])]),
    "dense union": pa.UnionArray.from_dense(KINDS, PLACES, [pa.array([1, 2]), pa.array(["a", None])]),
    "list of structs": pa.array([[{"a": [1]}], None, [], [{"a": None}, None]]),
}
DICTIONARIES = {
    "strings": WORDS,
    "large strings": WORDS.cast(pa.dictionary(pa.int8(), pa.large_string())),
    "numbers": pa.array([7, None, 7, 8]).dictionary_encode(),
    "dictionary of a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 3]), WORDS),
    "in a list": pa.ListArray.from_arrays([0, 1, 1, 3, 4], WORDS),
    "in a large list": pa.LargeListArray.from_arrays([0, 1, 1, 3, 4], WORDS),
    "in a fixed list": pa.FixedSizeListArray.from_arrays(pa.concat_arrays([WORDS, WORDS]), 2),
    "in a struct": pa.StructArray.from_arrays([WORDS, pa.array([1, 2, 3, 4])], ["w", "n"]),
    "in a map": pa.MapArray.from_arrays([0, 1, 1, 3, 4], pa.array(["k", "l", "m", "n"]), WORDS),
    "in a list of structs": pa.ListArray.from_arrays([0, 1, 1, 3, 4], pa.StructArray.from_arrays([WORDS], ["w"])),
}


def batch_of(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([column, pa.array(range(len(column)))], names=["x", "n"])


def there_and_back(batch: pa.RecordBatch) -> pa.RecordBatch:
    decoded = BatchCodec(batch.schema, paranoid=True).decode(*BatchCodec(batch.schema).encode(batch))
    decoded.validate(full=True)
    return decoded


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_comes_back_whole_sliced_and_empty(name: str) -> None:
    batch = batch_of(COLUMNS[name])
    for start, count in ((0, 4), (1, 2), (3, 1), (0, 1), (2, 0)):
        part = batch.slice(start, count)
        assert there_and_back(part).equals(part)


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries_travel_as_their_values_at_any_depth(name: str) -> None:
    batch = batch_of(DICTIONARIES[name])
    assert "dictionary" not in str(plain_schema(batch.schema))
    for start, count in ((0, 4), (1, 2), (2, 0)):
        part = batch.slice(start, count)
        decoded = there_and_back(part)
        assert decoded.schema == plain_schema(batch.schema)
        assert decoded.to_pydict() == part.to_pydict()


ENCODED = {
    "runs of numbers": runs([1, 3, 4], pa.array([1, None, 2]), pa.int16()),
    "runs of words": runs([1, 2, 3, 4], WORDS),
    "runs of lists": runs([1, 3, 4], pa.array([[1], None, []]), pa.int16()),
    "runs of nulls": runs([1, 3, 4], pa.nulls(3), pa.int16()),
    "list views": pa.array([[1, None], None, [], [2]], pa.list_view(pa.int64())),
    "large list views": pa.array([["a"], None, [], ["b"]], pa.large_list_view(pa.string())),
    "list views with a null that has a size": pa.ListViewArray.from_arrays(
        pa.array([0, 1, 1, 3], pa.int32()),
        pa.array([1, 2, 2, 1], pa.int32()),
        pa.array([1, 2, 3, 4]),
        mask=pa.array([False, True, False, False]),
    ),
    "list views of dictionaries": pa.ListViewArray.from_arrays([0, 1, 1, 3], [1, 0, 2, 1], WORDS),
}


@pytest.mark.parametrize("name", ENCODED)
def test_runs_and_list_views_travel_as_their_values(name: str) -> None:
    batch = batch_of(ENCODED[name])
    for start, count in ((0, 4), (1, 2), (3, 1), (2, 0)):
        part = batch.slice(start, count)
        decoded = there_and_back(part)
        assert decoded.schema == plain_schema(batch.schema)
        assert not any(word in str(decoded.schema) for word in ("run_end", "view", "dictionary"))
        assert decoded.to_pydict() == part.to_pydict()
        assert decoded.take(pa.array(range(count), pa.int64())).equals(decoded), "its rows can be taken"


class Code(pa.ExtensionType):
    """A user's own type over a storage of any type."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "headgate.tests.code")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Code:
        return cls(storage)


def test_an_extension_type_stays_unless_its_storage_is_a_dictionary() -> None:
    numbers = pa.ExtensionArray.from_storage(Code(pa.int64()), pa.array([1, None]))
    words = pa.ExtensionArray.from_storage(Code(WORDS.type), WORDS.slice(0, 2))
    decoded = there_and_back(pa.record_batch({"numbers": numbers, "words": words}))
    assert decoded.column("numbers").equals(numbers)
    assert decoded.column("words").equals(pa.array(["a", "b"]))


VIEWS = {
    "strings": (pa.array(["", None, LONG], pa.string_view()), pa.large_string()),
    "binaries": (pa.array([b"", None, b"x" * 40], pa.binary_view()), pa.large_binary()),
    "in a list": (pa.array([["a"], None, [LONG]], pa.list_(pa.string_view())), pa.list_(pa.large_string())),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_travel_as_large_columns(name: str) -> None:
    column, data_type = VIEWS[name]
    for part in (batch_of(column), batch_of(column).slice(1, 2), batch_of(column).slice(2, 0)):
        decoded = there_and_back(part)
        assert decoded.schema.field("x").type == data_type
        assert decoded.to_pydict() == part.to_pydict()


def test_batches_with_dictionaries_of_their_own_meet_in_one_schema() -> None:
    codec = BatchCodec(batch_of(WORDS).schema)
    other = batch_of(pa.array(["new", None]).dictionary_encode())
    decoded = [codec.decode(*codec.encode(batch)) for batch in (batch_of(WORDS), other)]
    assert concat_batches(decoded).column("x").to_pylist() == ["a", "b", None, "", "new", None]


def test_a_decoded_batch_uses_the_message_in_place() -> None:
    batch = pa.record_batch({"x": pa.array(range(100))})
    codec = BatchCodec(batch.schema)
    checksum, message = codec.encode(batch)
    values = codec.decode(checksum, message).column(0).buffers()[1]
    assert message.address <= values.address < message.address + message.size


def test_a_sliced_batch_sends_its_own_rows_only() -> None:
    batch = pa.record_batch({"x": pa.array(range(10_000)), "s": pa.array(["word"] * 10_000)})
    assert BatchCodec(batch.schema).encode(batch.slice(5_000, 10))[1].size < 1_000


def test_metadata_of_schemas_does_not_travel() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), metadata={"k": "v"})], metadata={"pandas": "{}"})
    codec = BatchCodec(schema)
    assert codec.schema.metadata is None
    assert codec.schema.field(0).metadata is None
    decoded = codec.decode(*codec.encode(pa.record_batch([pa.array([1])], schema=schema)))
    assert decoded.schema.equals(codec.schema, check_metadata=True)


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"n": [1]}, "column x: expected string, got none"),
        ({"x": ["a"], "n": pa.array([1], pa.int32())}, "column n: expected int64, got int32"),
        ({"x": ["a"], "n": [1], "more": [1]}, "column more: expected none, got int64"),
        ({"y": ["a"], "n": [1]}, "column x: expected string, got none; column y: expected none, got string"),
        ({"n": [1], "x": ["a"]}, r"columns in another order: expected \['x', 'n'\], got \['n', 'x'\]"),
    ],
)
def test_another_schema_is_refused_column_by_column(dictionary: bool, columns: dict, words: str) -> None:  # type: ignore[type-arg]
    word = pa.dictionary(pa.int32(), pa.string()) if dictionary else pa.string()
    codec = BatchCodec(pa.schema({"x": word, "n": pa.int64()}))
    with pytest.raises(ExchangeError, match=f"a batch with another schema was written: {words}"):
        codec.encode(pa.record_batch(columns))


def test_plain_values_may_stand_where_the_plan_has_a_dictionary() -> None:
    codec = BatchCodec(pa.schema({"x": pa.dictionary(pa.int32(), pa.string())}))
    for values in (pa.array(["a"]), pa.array(["a"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))):
        batch = codec.decode(*codec.encode(pa.record_batch({"x": values})))
        assert batch.to_pydict() == {"x": ["a"]}


def test_a_difference_in_nullability_is_named() -> None:
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    words = describe_difference(strict, pa.schema({"x": pa.int64()}))
    assert words == "column x: expected int64 not null, got int64"


def test_every_flipped_byte_is_found_by_the_checksum() -> None:
    batch = batch_of(COLUMNS["string"])
    codec = BatchCodec(batch.schema)
    checksum, message = codec.encode(batch)
    for at in range(message.size):
        damaged = bytearray(message)
        damaged[at] ^= 0x10
        with pytest.raises(ExchangeError, match="checksum mismatch: a record batch of [0-9]+ bytes was damaged"):
            codec.decode(checksum, pa.py_buffer(damaged))
    with pytest.raises(ExchangeError, match="checksum mismatch"):
        codec.decode(bytes(8), message)


def test_paranoid_looks_at_every_value() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\x02\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    batch = pa.record_batch([broken], names=["x"])
    message = BatchCodec(batch.schema).encode(batch)
    assert BatchCodec(batch.schema).decode(*message).num_rows == 1
    with pytest.raises(
        ExchangeError, match="stream corrupted: a message of [0-9]+ bytes is not a record batch: .*UTF8"
    ):
        BatchCodec(batch.schema, paranoid=True).decode(*message)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "null"])
def test_the_bytes_of_rows_are_what_arrow_says_but_for_null_bits(name: str) -> None:
    batch = batch_of(COLUMNS[name]).slice(1, 3)
    assert abs(BatchCodec(batch.schema).batch_bytes(batch) - batch.nbytes) <= 6  # Arrow counts one offset more


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_a_column_of_no_texts_may_have_no_offsets(kind: pa.DataType) -> None:
    schema = pa.schema({"n": pa.int64(), "text": kind})
    bare = pa.Array.from_buffers(kind, 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    batch = pa.RecordBatch.from_arrays([pa.array([], pa.int64()), bare], schema=schema)
    assert BatchCodec(schema).batch_bytes(batch) == 0


@pytest.mark.parametrize("nulls", [None, [False, True, False, False]])
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "float64", "bool"])
def test_as_arrow_is_what_pyarrow_makes(kind: str, nulls: list[bool] | None) -> None:
    values = np.array([0, 1, 5, 3, 9, 2, 1, 0]).astype(kind)[::2]  # not in one piece
    mask = None if nulls is None else np.array(nulls)
    made = as_arrow(values, mask)
    made.validate(full=True)
    assert made.equals(pa.array(values, mask=mask))
    assert made.type == pa.array(values).type
