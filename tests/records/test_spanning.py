"""Elements that span buffers: any elements, cut anywhere, are the same; damage is an error, never a wrong row."""

from __future__ import annotations

import itertools
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.records.arrow import BatchCodec
from headgate.records.elements import MAX_TIME, MIN_TIME, Anchor, Tag, WatermarkElement, WatermarkStatus
from headgate.records.spanning import (
    DeserializationResult,
    Element,
    SerializationResult,
    SpanningDeserializer,
    SpanningSerializer,
    serialize,
)
from tests.examples import examples

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string(), "d": pa.dictionary(pa.int32(), pa.string())})
CODEC = BatchCodec(SCHEMA)

WORD = st.none() | st.text(max_size=6)
ROW = st.tuples(st.none() | st.integers(MIN_TIME, MAX_TIME), WORD, WORD)


def batch_of(rows: list[tuple[int | None, str | None, str | None]], skipped: int = 0) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA).slice(skipped)


BATCH = st.builds(batch_of, st.lists(ROW, max_size=8), st.integers(0, 3))
ELEMENT = (
    BATCH
    | st.builds(WatermarkElement, st.integers(MIN_TIME, MAX_TIME))
    | st.builds(WatermarkStatus, st.booleans())
    | st.builds(Anchor, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
)


def bytes_of(elements: list[Element]) -> bytes:
    return b"".join(bytes(piece) for element in elements for piece in serialize(element, CODEC))


def feed(deserializer: SpanningDeserializer, data: bytes) -> list[Element]:
    return list(deserializer.feed([memoryview(data)]))


def assert_same(got: list[Element], wanted: list[Element]) -> None:
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        if isinstance(other, pa.RecordBatch):
            one.validate(full=True)
            assert one.schema == CODEC.schema
            assert one.to_pydict() == other.to_pydict()
        else:
            assert one == other


def assert_is_between_elements(deserializer: SpanningDeserializer) -> None:
    """What comes next is read from its first byte on."""
    assert not deserializer.partial
    assert feed(deserializer, bytes_of([WatermarkElement(7)])) == [WatermarkElement(7)]


@pytest.mark.parametrize("columns", [{"n": pa.int64()}, {"n": pa.int64(), "at": pa.timestamp("us")}])
def test_rows_have_one_tag_with_a_time_or_without(columns: dict[str, pa.DataType]) -> None:
    schema = pa.schema(columns)
    header, _ = serialize(pa.RecordBatch.from_pylist([{"n": 1}], schema), BatchCodec(schema))
    assert header[4] == Tag.RECORDS == 1  # type: ignore[comparison-overlap]


@settings(deadline=None)
@given(st.lists(ELEMENT, max_size=6), st.data())
def test_any_elements_cut_anywhere_are_the_same_elements(elements: list[Element], data: st.DataObject) -> None:
    stream = bytes_of(elements)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    deserializer, got = SpanningDeserializer(CODEC), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += feed(deserializer, stream[start:end])
    assert_same(got, elements)
    assert_is_between_elements(deserializer)


MIXED: list[Element] = [
    WatermarkElement(5),
    batch_of([(1, "a", "x"), (None, None, None)]),
    WatermarkStatus(False),
    batch_of([]),
    WatermarkElement(MAX_TIME),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_pieces_of_any_one_size(size: int) -> None:
    stream = bytes_of(MIXED)
    deserializer, got = SpanningDeserializer(CODEC), []
    for at in range(0, len(stream), size):
        got += feed(deserializer, stream[at : at + size])
    assert_same(got, MIXED)


@pytest.mark.parametrize("run", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_runs_of_segments_of_any_one_size(size: int, run: int) -> None:
    stream = memoryview(bytes_of(MIXED * 2))
    deserializer, got = SpanningDeserializer(CODEC), []
    for at in range(0, len(stream), size * run):
        part = stream[at : at + size * run]
        got += deserializer.feed(part[start : start + size] for start in range(0, len(part), size))
    assert_same(got, MIXED * 2)
    assert_is_between_elements(deserializer)


def test_an_element_comes_with_its_last_byte_and_not_before() -> None:
    for element in MIXED:
        stream = bytes_of([element])
        deserializer = SpanningDeserializer(CODEC)
        assert feed(deserializer, stream[:-1]) == []
        assert_same(feed(deserializer, stream[-1:]), [element])
        assert_is_between_elements(deserializer)


def test_many_elements_in_one_buffer() -> None:
    assert_same(feed(SpanningDeserializer(CODEC), bytes_of(MIXED * 3)), MIXED * 3)


@pytest.mark.parametrize("count", [0, 3, 7, 40])
def test_what_is_gathered_of_an_element_is_there_until_it_is_complete(count: int) -> None:
    stream = bytes_of([batch_of([(1, "a", "x")] * 50)])
    deserializer = SpanningDeserializer(CODEC)
    feed(deserializer, stream[:count])
    assert b"".join(deserializer.partial) == stream[:count]
    feed(deserializer, stream[count:])
    assert not deserializer.partial


def test_decoded_batches_own_their_memory() -> None:
    """The source buffer is filled again at once."""
    stream = bytearray(bytes_of([batch_of([(1, "a", "x")])]))
    deserializer = SpanningDeserializer(CODEC)
    (batch,) = deserializer.feed([memoryview(stream)])
    stream[:] = bytes(len(stream))
    assert batch.to_pydict() == {"n": [1], "s": ["a"], "d": ["x"]}
    assert batch.column("n").buffers()[1].address % 8 == 0


def test_the_bytes_are_those_documented() -> None:
    assert bytes_of([WatermarkElement(1)]) == b"\x00\x00\x00\x09\x02" + struct.pack(">q", 1)
    assert bytes_of([WatermarkStatus(True)]) == b"\x00\x00\x00\x02\x04\x01"
    batch = batch_of([(1, "a", "x")])
    checksum, message = CODEC.encode(batch)
    assert bytes_of([batch]) == struct.pack(">IB", 9 + message.size, 1) + checksum + bytes(message)


@pytest.mark.parametrize(
    ("length", "tag"),
    [
        (0, Tag.WATERMARK),
        (1, Tag.WATERMARK),
        (66, Tag.WATERMARK),
        (1 << 31, Tag.WATERMARK_STATUS),
        (2, 0),
        (66, 77),
        (0, Tag.RECORDS),
        (9, Tag.RECORDS),
        ((1 << 31) + 10, Tag.RECORDS),
        (0xFFFFFFFF, Tag.RECORDS),
    ],
)
def test_impossible_lengths_and_tags_are_corruption(length: int, tag: int) -> None:
    with pytest.raises(ExchangeError, match=f"stream corrupted: element tag {int(tag)} with"):
        feed(SpanningDeserializer(CODEC), struct.pack(">IB", length, tag) + bytes(64))


@pytest.mark.parametrize("at", [1, 2, 4, 8, 12, 40, -1])
def test_damage_within_a_batch_is_an_error_and_never_a_wrong_row(at: int) -> None:
    stream = bytearray(bytes_of([batch_of([(1, "a", "x")]), batch_of([(2, "b", "y")])]))
    at = at if at >= 0 else len(stream) // 2 - 1
    stream[at] ^= 1
    got: list[Element] = []
    deserializer = SpanningDeserializer(CODEC)
    try:
        for element in deserializer.feed([memoryview(stream)]):
            got.append(element)
    except ExchangeError:
        pass
    else:
        assert deserializer.partial, "a longer length waits for more; the stream ends in the middle"
    assert got == []


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 400), st.integers(1, 255))
def test_any_damaged_byte_of_checksum_or_message_is_found(at: int, flip: int) -> None:
    stream = bytearray(bytes_of([batch_of([(1, "a", "x"), (2, "b", "y")])]))
    stream[5 + at % (len(stream) - 5)] ^= flip
    with pytest.raises(ExchangeError, match="checksum mismatch"):
        feed(SpanningDeserializer(CODEC), bytes(stream))


class Segment:
    """What a serialiser appends to."""

    def __init__(self, size: int) -> None:
        self.data, self.size = b"", size

    @property
    def is_full(self) -> bool:
        return len(self.data) == self.size

    def append(self, data: memoryview) -> int:
        count = min(len(data), self.size - len(self.data))
        self.data += bytes(data[:count])
        return count


Written, Read = SerializationResult, DeserializationResult


def test_the_three_results_of_writing() -> None:
    """20 bytes, in pieces of 8 and 12, into segments of 10, 10 and more."""
    record = SpanningSerializer([memoryview(b"head----"), memoryview(b"body--------")])
    segments = [Segment(10), Segment(10), Segment(30)]
    assert record.copy_to(segments[0]) is Written.PARTIAL_RECORD_MEMORY_SEGMENT_FULL
    assert record.remaining == 10
    assert record.copy_to(segments[1]) is Written.FULL_RECORD_MEMORY_SEGMENT_FULL
    assert record.remaining == 0
    assert SpanningSerializer([memoryview(b"abc")]).copy_to(segments[2]) is Written.FULL_RECORD
    assert [segment.data for segment in segments] == [b"head----bo", b"dy--------", b"abc"]
    assert [result.is_full_record for result in Written] == [False, True, True]
    assert [result.is_full_buffer for result in Written] == [True, True, False]


def test_whole_segments_are_filled_in_one_step() -> None:
    record = SpanningSerializer([memoryview(b"abcdefgh")])
    places = [bytearray(3), bytearray(3), bytearray(3)]
    assert record.fill(map(memoryview, places[:2])) == 6
    assert record.remaining == 2
    assert record.fill(map(memoryview, places[2:])) == 2
    assert record.remaining == 0
    assert record.size == 8
    assert b"".join(places) == b"abcdefgh\0"


@settings(deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 9), max_size=8), fills=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_segments_are_filled_from_pieces_of_any_size(sizes: list[int], fills: list[int]) -> None:
    data = bytes(range(sum(sizes)))
    ends = list(itertools.accumulate(sizes))
    record = SpanningSerializer([memoryview(data)[end - size : end] for size, end in zip(sizes, ends, strict=True)])
    seen = b""
    for count in itertools.cycle(fills):
        places = [bytearray(5) for _ in range(count)]
        filled = record.fill(map(memoryview, places))
        assert filled == min(5 * count, len(data) - len(seen))
        seen += b"".join(places)[:filled]
        assert record.remaining == len(data) - len(seen)
        if not record.remaining:
            break
    assert seen == data


def test_the_three_results_of_reading() -> None:
    deserializer = SpanningDeserializer(CODEC)
    stream = bytes_of([WatermarkElement(1), WatermarkElement(2), WatermarkElement(3)])
    deserializer.set_next_buffer(memoryview(stream[:-1]))
    assert deserializer.next_record() is Read.INTERMEDIATE_RECORD_FROM_BUFFER
    assert deserializer.take() == WatermarkElement(1)
    assert deserializer.next_record() is Read.INTERMEDIATE_RECORD_FROM_BUFFER
    assert deserializer.take() == WatermarkElement(2)
    assert deserializer.next_record() is Read.PARTIAL_RECORD
    with pytest.raises(ExchangeError, match="before it was complete"):
        deserializer.take()
    deserializer.set_next_buffer(memoryview(stream[-1:]))
    assert deserializer.next_record() is Read.LAST_RECORD_FROM_BUFFER
    assert deserializer.take() == WatermarkElement(3)
    assert [result.is_full_record for result in Read] == [False, True, True]
    assert [result.is_buffer_consumed for result in Read] == [True, False, True]


@pytest.mark.parametrize("size", [1, 7, 13, 64, 4096])
def test_written_into_segments_and_read_from_them(size: int) -> None:
    """Every segment but the last of all is full, and the results on both sides fit together."""
    segments, full_records = [Segment(size)], 0
    for element in MIXED:
        record = SpanningSerializer(serialize(element, CODEC))
        while True:
            result = record.copy_to(segments[-1])
            if result.is_full_buffer:
                segments.append(Segment(size))
            if result.is_full_record:
                full_records += 1
                break
    deserializer, got = SpanningDeserializer(CODEC), []
    for segment in segments:
        assert segment.is_full or segment is segments[-1]
        got += feed(deserializer, segment.data)
    assert_same(got, MIXED)
    assert full_records == len(MIXED)
