"""The formats of messages by name: which decoder and encoder each has, and which arguments it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from headgate.connectors.kafka.avro_messages import AvroDecoder, AvroEncoder, Registry, avro_schema
from headgate.connectors.kafka.message_decoders import ArrowDecoder, JsonDecoder, MessageDecoder, RawDecoder
from headgate.connectors.kafka.message_encoders import ArrowEncoder, JsonEncoder, MessageEncoder, RawEncoder
from headgate.errors import ConfigError

Format: TypeAlias = Literal["json", "avro", "arrow", "raw"]
Avro: TypeAlias = str | Mapping[str, Any] | None
_NAMES = ("json", "avro", "arrow", "raw")


def decoder(format_: str, schema: pa.Schema | None, avro: Avro = None, registry: Avro = None) -> MessageDecoder:
    """Return the decoder of a format. Raises ConfigError."""
    _check(format_, avro, registry)
    if format_ == "raw":
        if schema is not None:
            raise ConfigError("kafka: format='raw' has one column, value binary; leave schema= out")
        return RawDecoder()
    if not isinstance(schema, pa.Schema):
        raise ConfigError(f"kafka: format={format_!r} needs schema=, such as pa.schema({{'id': pa.int64()}})")
    schema = schema.remove_metadata()
    if format_ == "avro":
        if avro is None and registry is None:
            raise ConfigError("kafka: format='avro' needs avro=, the schema of the messages, or registry=")
        return AvroDecoder(schema, avro_schema(avro), Registry.of(registry))
    return JsonDecoder(schema) if format_ == "json" else ArrowDecoder(schema)


def encoder(format_: str, topic: str, avro: Avro = None, registry: Avro = None) -> MessageEncoder:
    """Return the encoder of a format. Raises ConfigError."""
    _check(format_, avro, registry)
    if format_ == "avro":
        if avro is None:
            raise ConfigError("kafka: format='avro' needs avro=, the schema of the messages")
        return AvroEncoder(avro_schema(avro), Registry.of(registry), f"{topic}-value")
    encoders: dict[str, type[JsonEncoder | RawEncoder | ArrowEncoder]] = {
        "json": JsonEncoder, "raw": RawEncoder, "arrow": ArrowEncoder,
    }  # fmt: skip
    return encoders[format_]()


def _check(format_: str, avro: Avro, registry: Avro) -> None:
    if format_ not in _NAMES:
        raise ConfigError(f"kafka: format={format_!r} is not one of {', '.join(map(repr, _NAMES))}")
    if format_ != "avro" and (avro is not None or registry is not None):
        raise ConfigError(f"kafka: avro= and registry= are for format='avro', not {format_!r}")
