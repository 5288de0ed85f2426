"""Each connector that takes a secret, with a server that is away: the secret shows nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import headgate as hg
from headgate.bench.peers.kafka_broker import free_port
from headgate.connectors.kafka import kafka_offsets
from headgate.runtime.master.certificates import issue
from tests.connectors.shown import SECRET, Shown
from tests.kafka_broker import Broker

N = pa.schema({"n": pa.int64()})
#: Nobody listens there.
AWAY = f"127.0.0.1:{free_port()}"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": SECRET,
}
REGISTRY = {"url": f"http://{AWAY}", "basic.auth.user.info": f"user:{SECRET}", "max.retries": 0}
URI = f"postgresql://user:{SECRET}@{AWAY}/db"
S3 = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": SECRET,
    "AWS_REGION": "eu-west-1",
    "AWS_ENDPOINT_URL": f"http://{AWAY}",
    "AWS_ALLOW_HTTP": "true",
}
RETRIES = {"max_retries": "0", "retry_timeout": "1s"}
REST = {"type": "rest", "uri": f"http://{AWAY}", "credential": f"user:{SECRET}", "s3.secret-access-key": SECRET}
TOKEN = {"type": "rest", "uri": f"http://{AWAY}", "token": SECRET}
SQL = {"type": "sql", "uri": f"postgresql+psycopg2://user:{SECRET}@{AWAY}/db"}

SOURCES: dict[str, Callable[[], hg.Source]] = {
    "kafka": lambda: hg.sources.kafka(AWAY, "t", schema=N, options=SASL),
    "adbc": lambda: hg.sources.adbc("postgresql", URI, "t", by="n"),
    "adbc, query": lambda: hg.sources.adbc("postgresql", f"postgresql://{AWAY}/db?password={SECRET}", "t", by="n"),
    "delta": lambda: hg.sources.delta("s3://bucket/t", storage_options={**S3, **RETRIES}),
    "iceberg, credential": lambda: hg.sources.iceberg("a.t", "test", options=REST),
    "iceberg, token": lambda: hg.sources.iceberg("a.t", "test", options=TOKEN),
    "parquet on s3": lambda: hg.sources.parquet("s3://bucket/t/*.parquet"),
}
SINKS: dict[str, Callable[[], hg.Sink]] = {
    "kafka": lambda: hg.sinks.kafka(AWAY, "t", options=SASL),
    "adbc": lambda: hg.sinks.adbc("postgresql", URI, "t"),
    "delta": lambda: hg.sinks.delta("s3://bucket/t", storage_options={**S3, **RETRIES}),
    "iceberg, credential": lambda: hg.sinks.iceberg("a.t", "test", options=REST),
    "iceberg, token": lambda: hg.sinks.iceberg("a.t", "test", options=TOKEN),
    "iceberg, database": lambda: hg.sinks.iceberg("a.t", "test", options=SQL),
    "parquet on s3": lambda: hg.sinks.parquet("s3://bucket/t"),
    "webhook": lambda: hg.sinks.webhook(f"http://{AWAY}/{SECRET}", headers={"Authorization": f"Bearer {SECRET}"},
                                        timeout="100 ms"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def s3_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in S3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kafka_offsets, "ANSWER_TIMEOUT", 1.0)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_hides_its_secrets(name: str, shown: Shown) -> None:
    def build(env: hg.StreamEnvironment) -> hg.Source:
        source = SOURCES[name]()
        env.from_source(source).sink_to(hg.sinks.null())
        return source

    assert isinstance(shown.without_secrets(build), hg.SourceError)


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_hides_its_secrets(name: str, shown: Shown) -> None:
    def build(env: hg.StreamEnvironment) -> hg.Sink:
        sink = SINKS[name]()
        env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(sink)
        return sink

    assert isinstance(shown.without_secrets(build), hg.SinkError)


@pytest.mark.parametrize("columns", [None, N])
def test_a_lookup_hides_its_secrets(columns: pa.Schema | None, shown: Shown) -> None:
    def build(env: hg.StreamEnvironment) -> Any:
        asked = hg.lookups.adbc("postgresql", URI, "t")
        shown.texts += [repr(asked), str(asked)]
        return env.from_source(hg.sources.iterable([{"k": 1}])).lookup(asked, on="k", schema=columns)

    assert isinstance(shown.without_secrets(build), hg.SourceError)


@pytest.mark.parametrize("passphrase", [SECRET, "another"])
@pytest.mark.parametrize("as_file", [True, False])
def test_a_client_hides_the_passphrase_of_its_key(
    passphrase: str, as_file: bool, shown: Shown, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the right passphrase the server is away; with a wrong one the key cannot be read."""
    identity, _ = issue()
    key = load_pem_private_key(identity.key, None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase.encode()))
    path = tmp_path_factory.mktemp("keys") / "key.pem"  # not in the folder whose files are looked at
    path.write_bytes(encrypted)
    options = {
        "security.protocol": "SSL",
        "ssl.certificate.pem": identity.certificate.decode(),
        "ssl.key.password": SECRET,
        **({"ssl.key.location": str(path)} if as_file else {"ssl.key.pem": encrypted.decode()}),
    }
    lines = encrypted.decode().splitlines()[1:-1]

    def read(env: hg.StreamEnvironment) -> hg.Source:
        source = hg.sources.kafka(AWAY, "t", schema=N, options=options)
        env.from_source(source).sink_to(hg.sinks.null())
        return source

    def write(env: hg.StreamEnvironment) -> hg.Sink:
        sink = hg.sinks.kafka(AWAY, "t", options=options)
        env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(sink)
        return sink

    kinds = (hg.SourceError, hg.SinkError) if passphrase == SECRET else (hg.ConfigError, hg.ConfigError)
    for build, kind in zip((read, write), kinds, strict=True):
        error = shown.without_secrets(build, SECRET, *lines)
        assert isinstance(error, kind)
        assert ("ssl.key." in str(error)) == (passphrase != SECRET)


def test_a_sink_hides_the_secrets_of_a_registry(kafka: Broker, shown: Shown) -> None:
    schema = {"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]}
    topic = kafka.topic()

    def build(env: hg.StreamEnvironment) -> hg.Sink:
        sink = hg.sinks.kafka(kafka.servers, topic, format="avro", avro=schema, registry=REGISTRY)
        env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(sink)
        return sink

    error = shown.without_secrets(build)
    assert isinstance(error, hg.SinkError)
    assert "the schema registry does not answer" in error.message


@pytest.mark.parametrize("character", ["@", "/", "#", "?", "%", " ", "[", "%zz"])
def test_a_password_with_a_character_that_must_be_encoded(character: str) -> None:
    """The client library would take a part of such a password for something else, and name it in its error."""
    uri = f"postgresql://user:first{character}second@{AWAY}/db"
    for make in (
        lambda: hg.sources.adbc("postgresql", uri, "t", by="n"),
        lambda: hg.sinks.adbc("postgresql", uri, "t"),
    ):
        with pytest.raises(hg.ConfigError, match="must be percent-encoded") as refused:
            make()
        assert "first" not in str(refused.value)
        assert "second" not in str(refused.value)
