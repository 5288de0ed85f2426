"""Each connector that takes a secret, with a server that is away: the secret shows nowhere."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.bench.peers.kafka_broker import free_port
from headgate.connectors.kafka import kafka_offsets
from tests.kafka_broker import Broker

SECRET = "hush-4711-hush"
N = pa.schema({"n": pa.int64()})
#: Nobody listens there.
AWAY = f"127.0.0.1:{free_port()}"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": SECRET,
    "ssl.key.password": SECRET,
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


class Shown:
    """What a user may see of a job that has failed."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.texts: list[str] = []
        self.error: hg.HeadgateError | None = None
        self._caplog, self._capfd = caplog, capfd

    def without_secrets(self, build: Callable[[hg.StreamEnvironment], Any]) -> hg.HeadgateError | None:
        """Run a job until it fails, and return its error. The secret must show nowhere."""
        self.run(build)
        assert not any(SECRET in text for text in self.all())
        return self.error

    def run(self, build: Callable[[hg.StreamEnvironment], Any]) -> None:
        """Build a job, show its plan, and run it until it fails."""
        config = hg.Config(checkpoint_dir=self.folder, checkpoint_interval="10 ms", restart=hg.restart.none())
        env = hg.StreamEnvironment(parallelism=1, config=config, deployment=hg.LocalDeployment(processes=False))
        try:
            made = build(env)
            self.texts += [repr(made), str(env.explain())]
            job = env.execute_async("secrets")
            try:
                job.wait(60)
            finally:
                job.save_page(self.folder / "page.html")
        except hg.HeadgateError as error:
            self.error = error
            self.texts += [repr(error), *traceback.format_exception(error)]

    def all(self) -> list[str]:
        """Return all texts, with logs, output and files."""
        logs = [f"{record.getMessage()} {record.args} {record.exc_text}" for record in self._caplog.records]
        files = [path.read_bytes().decode(errors="replace") for path in self.folder.rglob("*") if path.is_file()]
        return [*self.texts, *logs, *self._capfd.readouterr(), *files]


@pytest.fixture
def shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> Shown:
    for name, value in S3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kafka_offsets, "ANSWER_TIMEOUT", 1.0)
    caplog.set_level(logging.DEBUG)
    return Shown(tmp_path, caplog, capfd)


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
