"""The format "avro": messages that are one Avro record each, with or without a schema registry.

With a registry, a message begins with a zero byte and the number of its schema (4 bytes), as Confluent's serializers
write it.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from headgate.connectors.kafka.avro_fields import misfits
from headgate.connectors.kafka.message_decoders import Decoded, MessageDecoder, all_but
from headgate.connectors.kafka.message_encoders import MessageEncoder
from headgate.connectors.schemas import shown
from headgate.errors import ConfigError, HeadgateError, PlanError, SinkError, SourceError

_HEAD: Final = struct.Struct(">bI")
#: The most numbers of unknown schemas that a source remembers: bad messages may have any number.
_MOST_UNKNOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class Registry:
    """The options of a schema registry's client, which may have secrets: `repr` does not show them."""

    options: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def of(value: str | Mapping[str, Any] | None) -> Registry | None:
        """Return the registry for a URL or options, or None for None. Raises ConfigError."""
        if value is None:
            return None
        options = {"url": value} if isinstance(value, str) else value
        if not isinstance(options, Mapping) or not isinstance(options.get("url"), str):
            raise ConfigError("kafka: registry= must be a URL, or a dict of the client's options with 'url'")
        hosts = [url.partition("://")[2].partition("/")[0] for url in options["url"].split(",")]
        if any("@" in host for host in hosts):  # the client's errors have the URL
            raise ConfigError(
                "kafka: registry= has a user or a password in its URL; give them as 'basic.auth.user.info' in the dict "
                "registry="
            )
        registry = Registry(dict(options))
        registry.client()  # a wrong option is refused here
        return registry

    def client(self) -> Any:
        """Return a client. Raises ConfigError for a wrong option, and without the packages for it."""
        try:
            module = import_module("confluent_kafka.schema_registry")
        except ImportError as error:
            raise ConfigError(
                f"a schema registry needs more packages ({error}): pip install 'headgate[schema-registry]'"
            ) from None
        try:
            return module.SchemaRegistryClient(dict(self.options))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"kafka: the schema registry's client refuses an option ({type(error).__name__}); see the options of "
                "confluent_kafka.schema_registry.SchemaRegistryClient"
            ) from None


def avro_schema(avro: str | Mapping[str, Any] | None) -> Any:
    """Parse the schema that the user gave as `avro=`, a dict or JSON text, and return it. For None, return None.

    Raises ConfigError if it is not the Avro schema of a record, and without the package fastavro.
    """
    if avro is None:
        return None
    try:
        parsed = _fastavro().parse_schema(json.loads(avro) if isinstance(avro, str) else dict(avro))
    except ConfigError:
        raise
    except Exception as error:  # of the JSON text, or any of fastavro
        raise ConfigError(f"kafka: avro= is not an Avro schema: {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError("kafka: avro= must be the schema of a record")
    return parsed


def _fastavro() -> Any:
    try:
        return import_module("fastavro")
    except ImportError as error:
        raise ConfigError(
            f"format='avro' needs the package fastavro ({error}): pip install 'headgate[kafka]'"
        ) from None


class AvroDecoder(MessageDecoder):
    """Decodes Avro records. Columns that a record does not have are null; other fields are skipped."""

    def __init__(self, schema: pa.Schema, avro: Any, registry: Registry | None) -> None:
        self.schema = schema
        self._avro = avro
        self._registry = registry
        self._client: Any = None
        self._written: dict[int, Any] = {}
        #: Why the registry cannot tell a schema, by number, so that it is asked once.
        self._unknown: dict[int, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def decode(self, values: list[bytes | None]) -> Decoded:
        read = _fastavro().schemaless_reader
        rows, numbers, bad = [], [], []
        for number, value in enumerate(values):
            try:
                rows.append(self._record(value, read))
                numbers.append(number)
            except HeadgateError:
                raise
            except Exception as error:  # the bytes may be anything, and fastavro has no error of its own for that
                bad.append((number, f"it is not an Avro record of the schema: {error or type(error).__name__}"))
        try:
            batch = pa.RecordBatch.from_pylist(rows, self.schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            batch, misfits = self._one_by_one(rows)
            bad = sorted([*bad, *((numbers[number], reason) for number, reason in misfits)])
        return Decoded(batch, all_but(len(values), bad), bad)

    def _record(self, value: bytes | None, read: Any) -> dict[str, Any]:
        if value is None:
            raise ValueError("the message has no value")
        writer, begin = self._avro, 0
        if self._registry is not None:
            magic, number = _HEAD.unpack_from(value)
            if magic:
                raise ValueError("it does not begin with the number of a registered schema")
            writer, begin = self._schema_of(number), _HEAD.size
        stream = io.BytesIO(value)
        stream.seek(begin)
        record = read(stream, writer, self._avro)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
        return record if isinstance(record, dict) else {}

    def _schema_of(self, number: int) -> Any:
        """Return the schema that a message was written with. Raises ValueError for a number that is not registered."""
        assert self._registry is not None
        if number in self._unknown:
            raise ValueError(self._unknown[number])
        if number not in self._written:
            self._client = self._client or self._registry.client()
            try:
                schema = _asked(f"schema {number}", SourceError, lambda: self._client.get_schema(number))
                self._written[number] = self._parsed(schema, {})
            except ValueError as error:
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[number] = str(error)
                raise
        return self._written[number]

    def _parsed(self, schema: Any, named: dict[str, Any]) -> Any:
        """Parse a schema and those that it refers to. `named` has the schemas that are known by name, and grows."""
        for reference in schema.references or ():
            what = f"version {reference.version} of {reference.subject!r}"
            ask = partial(self._client.get_version, reference.subject, reference.version)
            self._parsed(_asked(what, SourceError, ask).schema, named)
        return _fastavro().parse_schema(json.loads(schema.schema_str), named_schemas=named)

    def _one_by_one(self, rows: Sequence[Any]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        good, bad = [], []
        for number, row in enumerate(rows):
            try:
                pa.RecordBatch.from_pylist([row], self.schema)
                good.append(row)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                bad.append((number, f"it does not fit ({shown(self.schema)}): {error}"))
        return pa.RecordBatch.from_pylist(good, self.schema), bad


class AvroEncoder(MessageEncoder):
    """Makes an Avro record of each row. `subject` names the schema in the registry."""

    def __init__(self, avro: Any, registry: Registry | None, subject: str) -> None:
        self._avro = avro
        self._registry = registry
        self._subject = subject
        self._head = b""

    def check(self, schema: pa.Schema) -> None:
        """Compare the columns with the fields, and register the schema."""
        fields = {each["name"]: "default" in each for each in self._avro["fields"]}
        missing = [name for name, has_default in fields.items() if not has_default and name not in schema.names]
        if missing or (unknown := [name for name in schema.names if name not in fields]):
            wrong = f"no column {missing[0]!r}" if missing else f"a column {unknown[0]!r} that is no field"
            raise PlanError(f"kafka: the rows have {wrong} of the schema in avro=; they have ({shown(schema)})")
        if wrong := next(misfits(self._avro, schema), ""):
            raise PlanError(f"kafka: the rows have {wrong} of the schema in avro=; they have ({shown(schema)})")
        if self._registry is not None:
            client = self._registry.client()
            new = import_module("confluent_kafka.schema_registry").Schema(json.dumps(_plain(self._avro)), "AVRO")
            number = _asked(self._subject, SinkError, lambda: client.register_schema(self._subject, new))
            self._head = _HEAD.pack(0, number)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        write = _fastavro().schemaless_writer
        texts = []
        columns = [_for_fastavro(column) for column in batch.columns]
        for row in pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist():
            stream = io.BytesIO()
            stream.write(self._head)
            try:
                write(stream, self._avro, row)
            except Exception as error:  # fastavro raises what the wrong value leads to
                raise SinkError(f"a row does not fit the schema in avro=: {error or type(error).__name__}") from None
            texts.append(stream.getvalue())
        return pa.array(texts, pa.binary())


def _for_fastavro(column: pa.Array) -> pa.Array:
    """Return a column without dictionaries, and with the zone UTC for times without a zone, also in structs and lists.

    fastavro takes a time without a zone for one in the machine's own zone. For `local-timestamp-*` it ignores the zone.
    It cannot write maps of Arrow.
    """
    type_ = _with_values(column.type, lambda each: each.value_type if pa.types.is_dictionary(each) else each)
    column = column if type_ == column.type else column.cast(type_)
    return column.view(_with_values(type_, _in_utc))


def _in_utc(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp(type_.unit, "UTC") if pa.types.is_timestamp(type_) and type_.tz is None else type_


def _with_values(type_: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with changed types of the values in it, at any depth of structs and lists."""
    if pa.types.is_struct(type_):
        return pa.struct([each.with_type(_with_values(each.type, changed)) for each in type_])
    kinds = {pa.types.is_list: pa.list_, pa.types.is_large_list: pa.large_list}
    kinds[pa.types.is_fixed_size_list] = lambda items: pa.list_(items, type_.list_size)
    for is_kind, made in kinds.items():
        if is_kind(type_):
            return made(type_.value_field.with_type(_with_values(type_.value_type, changed)))
    return changed(type_)


def _plain(schema: Any) -> Any:
    """Return a parsed schema without fastavro's own entries."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if not key.startswith("__")}
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema


def _asked(what: str, kind: type[HeadgateError], ask: Any) -> Any:
    """Return the registry's answer to `ask`. Raises `kind` if the registry refuses or does not answer. If a source asks
    for a schema that the registry does not know, raises ValueError. No message has the registry's options."""
    error_type = import_module("confluent_kafka.schema_registry.error").SchemaRegistryError
    try:
        return ask()
    except error_type as error:
        if kind is SourceError and error.http_status_code == 404:
            raise ValueError(f"the schema registry does not know {what}") from None
        raise kind(f"the schema registry refuses {what}: {error.error_message} ({error.http_status_code})") from None
    except Exception as error:  # of its HTTP library
        raise kind(
            f"the schema registry does not answer about {what} ({type(error).__name__}); check registry="
        ) from None
