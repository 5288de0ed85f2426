"""The format "avro", with a real broker, and with a schema registry's real client against a small server."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import assert_same_rows
from tests.kafka_broker import Broker, values
from tests.runtime.jobs import environment

fastavro = pytest.importorskip("fastavro")

AVRO = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
OLD = {"type": "record", "name": "Trip", "fields": [AVRO["fields"][0], AVRO["fields"][2]]}
SCHEMA = pa.schema({"id": pa.int64(), "city": pa.string(), "at": pa.timestamp("ms", "UTC")})
ROWS = [{"id": n, "city": ["Rome", None][n % 2], "at": 1714557600000 + n} for n in range(10)]


def rows() -> pa.Table:
    return pa.Table.from_pylist(ROWS, SCHEMA)


def encoded(schema: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def written(kafka: Broker, **options: Any) -> str:
    topic = kafka.topic(1)
    env = environment()
    env.from_source(hg.sources.iterable(rows())).sink_to(hg.sinks.kafka(kafka.servers, topic, format="avro", **options))
    env.execute()
    return topic


def read(kafka: Broker, topic: str, **options: Any) -> tuple[pa.Table, list[dict[str, Any]]]:
    options = {"schema": SCHEMA, **options}
    source = hg.sources.kafka(kafka.servers, topic, format="avro", stop="latest", **options)
    env, bad = environment(), hg.sinks.collect()
    stream = env.from_source(source)
    stream.side_output("bad").sink_to(bad)
    return stream.collect(), bad.to_table().to_pylist()


def test_records_of_a_given_schema(kafka: Broker) -> None:
    topic = written(kafka, avro=AVRO)
    assert values(kafka.messages(topic))[3] == encoded(AVRO, ROWS[3])
    kafka.produce(topic, [b"\xff\xff\xff", None, encoded(AVRO, ROWS[0]) + b"more"])
    found, bad = read(kafka, topic, avro=json.dumps(AVRO))
    assert_same_rows(found, rows())
    assert [each["offset"] for each in bad] == [10, 11, 12]
    assert "the message has no value" in bad[1]["error"]
    assert "4 bytes are left over" in bad[2]["error"]


class Registry:
    """The requests of a schema registry that the format needs, by HTTP. `references` has those of each schema, and
    `asked` has the paths of the questions."""

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.references: dict[int, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                number = len(registry.schemas) + 1
                registry.schemas[number] = asked["schema"]
                self._answer(200, {"id": number})

            def do_GET(self) -> None:
                registry.asked.append(path := self.path.split("?")[0])
                number = int(path.rpartition("/")[2])  # of a schema, or of a version: here they are the same
                found = registry.schemas.get(number)
                if found is None:
                    self._answer(404, {"error_code": 40403, "message": "Schema not found"})
                    return
                more = {"subject": path.split("/")[2], "version": number} if path.startswith("/subjects") else {}
                references = registry.references.get(number, [])
                self._answer(200, {"id": number, "schema": found, "references": references, **more})

            def _answer(self, status: int, values: Any) -> None:
                text = json.dumps(values).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True, name="registry").start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    pytest.importorskip("confluent_kafka.schema_registry")
    registry = Registry()
    yield registry
    registry.close()


def test_records_of_registered_schemas(kafka: Broker, registry: Registry) -> None:
    """An old schema, of which a field is missing, is resolved. A number that is not registered is a bad message."""
    topic = written(kafka, avro=AVRO, registry=registry.url)
    message = values(kafka.messages(topic))[3]
    assert message == b"\0\0\0\0\1" + encoded(AVRO, ROWS[3])
    registry.schemas[7] = json.dumps(OLD)
    old = {"id": 11, "at": 1714557600000}
    kafka.produce(topic, [b"\0\0\0\0\7" + encoded(OLD, old), b"\0\0\0\0\x08" + encoded(OLD, old), b"no"])
    found, bad = read(kafka, topic, avro=AVRO, registry={"url": registry.url})
    assert_same_rows(found, pa.Table.from_pylist([*ROWS, {**old, "city": None}], SCHEMA))
    assert [each["offset"] for each in bad] == [11, 12]
    assert "the schema registry does not know schema 8" in bad[0]["error"]
    kafka.produce(topic, [b"\0\0\0\0\x08"] * 5)
    registry.asked.clear()
    assert len(read(kafka, topic, avro=AVRO, registry={"url": registry.url})[1]) == 7
    assert registry.asked.count("/schemas/ids/8") == 1, "it is asked once for each reader"
    found, _ = read(kafka, topic, registry=registry.url)
    assert found.num_rows == 11


def test_schemas_that_refer_to_others(kafka: Broker, registry: Registry) -> None:
    """A schema names a record of another one, which names a third. A reference that is gone makes a bad message."""
    place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
    stop = {"type": "record", "name": "Stop", "fields": [{"name": "place", "type": "Place"}]}
    number, to = {"name": "id", "type": "long"}, {"name": "to", "type": "Stop"}
    trip = {"type": "record", "name": "Trip", "fields": [number, to]}
    registry.schemas |= {at: json.dumps(schema) for at, schema in enumerate([place, stop, trip, trip], 1)}
    for at, name, refers in [(2, "Place", 1), (3, "Stop", 2), (4, "Stop", 9)]:
        registry.references[at] = [{"name": name, "subject": name.lower(), "version": refers}]
    whole_stop = {**stop, "fields": [{"name": "place", "type": place}]}
    whole = {**trip, "fields": [number, {**to, "type": whole_stop}]}
    row = {"id": 1, "to": {"place": {"city": "Rome"}}}
    topic = kafka.topic(1)
    kafka.produce(topic, [bytes([0, 0, 0, 0, at]) + encoded(whole, row) for at in (3, 4)])
    schema = pa.schema({"id": pa.int64(), "to": pa.struct({"place": pa.struct({"city": pa.string()})})})
    found, bad = read(kafka, topic, schema=schema, avro=whole, registry=registry.url)
    assert found.to_pylist() == [row]
    assert "the schema registry does not know version 9 of 'stop'" in bad[0]["error"]


def test_a_registry_that_does_not_answer_is_named_without_its_secrets(
    kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pytest.importorskip("confluent_kafka.schema_registry")
    topic = written(kafka, avro=AVRO)
    kafka.produce(topic, [b"\0\0\0\0\1"])
    options = {"url": "http://127.0.0.1:1", "basic.auth.user.info": "me:hush-hush", "max.retries": 0}
    source = hg.sources.kafka(kafka.servers, topic, schema=SCHEMA, format="avro", stop="latest", registry=options,
                              start={(topic, 0): 10})  # fmt: skip
    env = environment()
    env.from_source(source).sink_to(hg.sinks.null())
    with pytest.raises(hg.SourceError, match="the schema registry does not answer about schema 1") as raised:
        env.execute()
    assert "hush-hush" not in str(raised.value) + caplog.text


@pytest.mark.parametrize("url", ["http://me:hush-hush@127.0.0.1:1", "http://one:1,https://me:hush-hush@two:1"])
def test_a_url_with_a_password_is_refused(url: str) -> None:
    pytest.importorskip("confluent_kafka.schema_registry")
    for registry in (url, {"url": url}):
        with pytest.raises(hg.ConfigError, match=r"as 'basic\.auth\.user\.info' in the dict registry=") as refused:
            hg.sources.kafka("127.0.0.1:1", "x", schema=SCHEMA, format="avro", registry=registry)
        assert "hush-hush" not in str(refused.value)


def test_a_schema_that_changed_under_the_rows_is_one_clear_error(kafka: Broker) -> None:
    topic = kafka.topic(1)
    changed = {**OLD, "fields": [{"name": "id", "type": "string"}, OLD["fields"][1]]}
    kafka.produce(topic, [encoded(changed, {"id": "abc", "at": 0})])
    source = hg.sources.kafka(kafka.servers, topic, schema=SCHEMA, format="avro", stop="latest", avro=changed)
    env = environment()
    env.from_source(source).sink_to(hg.sinks.null())
    with pytest.raises(hg.SourceError, match=r"the message at offset 0 cannot be decoded: it does not fit \(id int64"):
        env.execute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs avro=, the schema of the messages"),
        ({"avro": {"type": "string"}}, "must be the schema of a record"),
        ({"avro": "no json"}, "avro= is not an Avro schema"),
        ({"avro": AVRO, "registry": 7}, "registry= must be a URL"),
        ({"avro": AVRO, "format": "json"}, "are for format='avro'"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hg.ConfigError, match=message):
        hg.sinks.kafka("127.0.0.1:1", "x", **{"format": "avro", **options})


def test_columns_that_are_no_fields_are_refused() -> None:
    for columns, message in (({"id": pa.int64()}, "no column 'at'"), ({**dict(zip(SCHEMA.names, SCHEMA.types,
                             strict=True)), "x": pa.int64()}, "a column 'x' that is no field")):  # fmt: skip
        env = environment()
        env.from_source(hg.sources.iterable([], pa.schema(columns))).sink_to(
            hg.sinks.kafka("127.0.0.1:1", "x", format="avro", avro=AVRO)
        )
        with pytest.raises(hg.PlanError, match=message):
            env.execute()
