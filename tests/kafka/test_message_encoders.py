"""Encoders of messages, without a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.kafka.avro_messages import AvroDecoder, AvroEncoder, avro_schema
from headgate.connectors.kafka.message_encoders import ArrowEncoder

#: The largest message that librdkafka and brokers take by default, without what they add.
LARGEST = 999_000


def streams(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = ArrowEncoder().values(batch).to_pylist()
    return found


@pytest.mark.parametrize("begin", [0, 37, 80])
def test_arrow_messages_of_rows_of_uneven_size(begin: int) -> None:
    """Large rows lie side by side: by the average row, they would be in one message."""
    texts = ["x" * 400_000 if begin <= n < begin + 20 else "y" for n in range(10_000)]
    batch = pa.record_batch({"n": range(10_000), "s": texts})
    messages = streams(batch)
    assert max(map(len, messages)) < LARGEST
    assert len(messages) < 60
    assert pa.concat_tables(pa.ipc.open_stream(each).read_all() for each in messages).equals(pa.table(batch))


@pytest.mark.parametrize("largest", [3_000, 50_000, 2_000_000])
def test_arrow_messages_are_as_small_as_the_topic_needs(largest: int) -> None:
    batch = pa.record_batch({"n": range(200_000), "s": ["x" * (n % 50) for n in range(200_000)]})
    encoder = ArrowEncoder()
    encoder.limit(largest)
    messages = encoder.values(batch).to_pylist()
    assert max(map(len, messages)) <= min(largest, 900_000)
    assert pa.concat_tables(pa.ipc.open_stream(each).read_all() for each in messages).equals(pa.table(batch))


def test_an_arrow_message_of_one_large_row() -> None:
    batch = pa.record_batch({"s": ["x", "y" * 2_000_000, "z"]})
    assert [pa.ipc.open_stream(each).read_all().num_rows for each in streams(batch)] == [1, 1, 1]


def test_a_large_dictionary_is_not_copied_for_each_row() -> None:
    texts = pa.array([f"{n} of many texts in a dictionary" for n in range(50_000)]).dictionary_encode()
    assert sum(map(len, streams(pa.record_batch({"s": texts})))) < 10_000_000


# --- Avro

NOON = datetime(2024, 5, 1, 12, 0, 0, 123000)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's own time zone is not UTC."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert time.timezone, "there are no time zones here: install tzdata"
    yield
    monkeypatch.undo()
    time.tzset()


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return the Avro schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": each, "type": fields[each]} for each in fields]}


@pytest.mark.usefixtures("in_berlin")
def test_avro_times_of_dictionaries_are_utc() -> None:
    pytest.importorskip("fastavro")
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    avro = avro_schema(record("Trip", at=moment, stop=record("Stop", at=moment)))
    times = pa.array([NOON, NOON], pa.timestamp("us")).dictionary_encode()
    batch = pa.record_batch({"at": times, "stop": pa.StructArray.from_arrays([times], ["at"])})
    [value, _] = AvroEncoder(avro, None, "").values(batch).to_pylist()
    schema = pa.schema({"at": pa.timestamp("us"), "stop": pa.struct({"at": pa.timestamp("us")})})
    assert AvroDecoder(schema, avro, None).decode([value]).rows.to_pylist() == [{"at": NOON, "stop": {"at": NOON}}]


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("kind", ["", "local-"])
def test_avro_times_without_a_zone_are_utc(kind: str, unit: str) -> None:
    pytest.importorskip("fastavro")
    moment: Any = {"type": "long", "logicalType": f"{kind}timestamp-{'micros' if unit == 'us' else 'millis'}"}
    avro = avro_schema(record(
        "Trip", at=["null", moment], stop=record("Stop", at=moment, city="string"),
        stops={"type": "array", "items": record("Each", at=["null", moment])}, times={"type": "array", "items": moment},
    ))  # fmt: skip
    type_ = pa.timestamp(unit)
    schema = pa.schema({
        "at": type_, "stop": pa.struct({"at": type_, "city": pa.string()}),
        "stops": pa.list_(pa.struct({"at": type_})), "times": pa.list_(type_, 2),
    })  # fmt: skip
    noon = NOON.replace(microsecond=0) if unit == "s" else NOON
    rows = [
        {"at": None, "stop": {"at": noon, "city": "Rome"}, "stops": [], "times": [noon] * 2},
        {"at": noon, "stop": {"at": noon, "city": "Oslo"}, "stops": [{"at": noon}, {"at": None}], "times": [noon] * 2},
    ]
    values = AvroEncoder(avro, None, "").values(pa.RecordBatch.from_pylist(rows, schema)).to_pylist()
    assert AvroDecoder(schema, avro, None).decode(values).rows.to_pylist() == rows
    milliseconds = int(noon.replace(tzinfo=UTC).timestamp() * 1_000)
    whole = pa.schema({"at": pa.timestamp("us" if unit == "us" else "ms")})
    found = AvroDecoder(whole, avro, None).decode(values).rows.column("at").cast(pa.timestamp("ms")).cast(pa.int64())
    assert found.to_pylist() == [None, milliseconds]


def stop_of(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return the schema of a trip with one column, whose records have also a gate, which has a default, and a note."""
    stop = record(name, **fields)
    stop["fields"] += [{"name": "gate", "type": "int", "default": 7}, {"name": "note", "type": ["null", "string"]}]
    return stop


def test_avro_writes_null_and_defaults_for_missing_fields_of_a_nested_record() -> None:
    pytest.importorskip("fastavro")
    stop = stop_of("Stop", city="string")
    encoder = AvroEncoder(
        avro_schema(record("Trip", stop=["null", stop], stops={"type": "array", "items": "Stop"})), None, ""
    )
    batch = pa.RecordBatch.from_pylist([{"stop": {"city": "Rome"}, "stops": [{"city": "Oslo"}]}])
    encoder.check(batch.schema)
    assert encoder.values(batch).to_pylist() == [b"\2\x08Rome\x0e\0\2\x08Oslo\x0e\0\0"]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"city": "Rome", "platform": 3}, "a field 'AT.platform' that is none of the schema in avro="),
        ({"gate": 3}, "no field 'AT.city' of the schema in avro="),
    ],
)
def test_avro_refuses_other_fields_of_nested_records(found: dict[str, Any], wrong: str) -> None:
    pytest.importorskip("fastavro")
    stop = stop_of("Stop", city="string")
    avro = avro_schema(record("Trip", stop=["null", stop], stops={"type": "array", "items": "Stop"}))
    fine = {"stop": {"city": "Rome"}, "stops": [{"city": "Oslo"}]}
    for at, row in (("stop", {**fine, "stop": found}), ("stops", {**fine, "stops": [found]})):
        with pytest.raises(hg.PlanError, match=wrong.replace("AT", at)):
            AvroEncoder(avro, None, "").check(pa.RecordBatch.from_pylist([row]).schema)


def test_avro_unions_of_records_are_structs_with_the_fields_of_all() -> None:
    pytest.importorskip("fastavro")
    cat, dog = record("Cat", lives="int"), record("Dog", name="string", owner=record("Owner", name="string"))
    avro = avro_schema(record("Trip", pet=["null", cat, dog]))
    owner = pa.struct({"name": pa.string()})
    schema = pa.schema({"pet": pa.struct({"lives": pa.int32(), "name": pa.string(), "owner": owner})})
    rows = [
        {"pet": {"lives": 9, "name": None, "owner": None}},
        {"pet": None},
        {"pet": {"lives": None, "name": "Rex", "owner": {"name": "Ann"}}},
    ]
    encoder = AvroEncoder(avro, None, "")
    encoder.check(schema)
    values = encoder.values(pa.RecordBatch.from_pylist(rows, schema)).to_pylist()
    assert AvroDecoder(schema, avro, None).decode(values).rows.to_pylist() == rows
    for fields, wrong in (({"age": pa.int8()}, "'pet.age' that is none"), ({"name": pa.string()}, "no field 'pet.li")):
        with pytest.raises(hg.PlanError, match=wrong):
            encoder.check(pa.schema({"pet": pa.struct(fields)}))
