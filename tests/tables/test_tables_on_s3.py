"""Delta and Iceberg tables on S3: sinks write them exactly once, and sources read them.

The service runs in a process of its own, because deltalake holds the interpreter lock while it waits for an answer.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

import headgate as hg
from headgate.bench.peers.kafka_broker import free_port
from headgate.testing import assert_same_rows, check_sink
from tests.runtime.jobs import eventually

ROWS = pa.table({"n": range(12), "s": [str(n) for n in range(12)]})


BUCKET = "tables"


@contextmanager
def s3_process(folder: Path) -> Iterator[str]:
    """Run an S3 service with a bucket. Yields its address."""
    port = free_port()
    command = [sys.executable, "-c", f"from moto.server import main; main(['-p', '{port}'])"]
    with (folder / "s3.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(lambda: process.poll() is not None or answers(port))
            client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
            client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
            client.close()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with s3_process(tmp_path) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield address


class DeltaTables:
    """Tables in folders of a bucket. The environment has the address of the service and the keys."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self._library = pytest.importorskip("deltalake")
        self._options = {"AWS_ALLOW_HTTP": "true"}

    def sink(self, name: str) -> hg.Sink:
        return hg.sinks.delta(f"s3://{BUCKET}/{name}", storage_options=self._options)

    def source(self, name: str) -> hg.Source:
        return hg.sources.delta(f"s3://{BUCKET}/{name}", storage_options=self._options, bounded=True)

    def read(self, name: str) -> list[dict[str, Any]]:
        library, uri = self._library, f"s3://{BUCKET}/{name}"
        if not library.DeltaTable.is_deltatable(uri, storage_options=self._options):
            return []
        rows: list[dict[str, Any]] = (
            library.DeltaTable(uri, storage_options=self._options).to_pyarrow_table().to_pylist()
        )
        return rows


class IcebergTables:
    """Tables of a catalog in a SQLite file, whose files are in a bucket."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        pytest.importorskip("pyiceberg.catalog.sql")
        from pyiceberg.catalog import load_catalog

        self._options = {
            "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://{BUCKET}/lake",
            "s3.endpoint": endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test",
            "s3.region": "eu-west-1",
        }  # fmt: skip
        self._catalog = load_catalog("test", **self._options)
        self._catalog.create_namespace("lake")

    def sink(self, name: str) -> hg.Sink:
        return hg.sinks.iceberg(f"lake.{name}", "test", options=self._options)

    def source(self, name: str) -> hg.Source:
        return hg.sources.iceberg(f"lake.{name}", "test", options=self._options, bounded=True)

    def read(self, name: str) -> list[dict[str, Any]]:
        if not self._catalog.table_exists(f"lake.{name}"):
            return []
        rows: list[dict[str, Any]] = self._catalog.load_table(f"lake.{name}").scan().to_arrow().to_pylist()
        return rows


@pytest.mark.parametrize("kind", [DeltaTables, IcebergTables])
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_sink_keeps_the_contract(endpoint: str, tmp_path: Path, kind: Any) -> None:
    tables = kind(endpoint, tmp_path)
    check_sink(tables.sink, tables.read, rows=ROWS, checkpoints=[2], lines=3)


@pytest.mark.parametrize("kind", [DeltaTables, IcebergTables])
def test_a_source_reads_what_a_sink_wrote(endpoint: str, tmp_path: Path, kind: Any) -> None:
    tables = kind(endpoint, tmp_path)
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
    env.from_source(hg.sources.iterable(ROWS.to_batches(max_chunksize=3))).sink_to(tables.sink("t"))
    env.execute()
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    assert_same_rows(env.from_source(tables.source("t")).collect(), ROWS)
