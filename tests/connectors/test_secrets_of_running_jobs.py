"""Jobs with secrets that run for a while, and then fail: the secrets show nowhere, not in the recording either."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.protocol.handshake import Identity
from headgate.runtime.master import certificates, job_monitor
from tests.connectors.shown import Shown
from tests.postgres_server import PASSWORD, Postgres

#: The rows that the jobs read before they fail, and how many they read in a second.
ROWS, RATE = 300, 1000.0


@pytest.fixture(autouse=True)
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record failed jobs in the folder of the test. Every job is worth it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(job_monitor, "PERIOD", 0.01)
    monkeypatch.setattr(job_monitor, "_WORTH_RECORDING", 1)


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


def failing(env: hg.StreamEnvironment, uri: str) -> hg.DataStream:
    """Rows, and then an error of the user that quotes a URI."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == ROWS:
            raise ConnectionError(f"cannot reach {uri}")
        return row

    rows = env.from_source(hg.sources.generate(numbers, rate=RATE, batch_rows=10))
    return rows.map(check, schema=rows.schema)


def assert_is_recorded(shown: Shown, error: hg.HeadgateError) -> None:
    """The last minutes of the job are among what was searched for secrets."""
    (path,) = shown.folder.rglob("*.recording")
    assert path.name in str(error)
    assert any(text.startswith('{"headgate_recording"') for text in shown.all())


def test_a_job_with_a_database_hides_its_password(postgres: Postgres, shown: Shown) -> None:
    asked, written = postgres.table("n bigint primary key, x text"), postgres.table("n bigint, x text")

    def build(env: hg.StreamEnvironment) -> Any:
        rows = failing(env, postgres.uri).lookup(hg.lookups.adbc("postgresql", postgres.uri, asked), on="n")
        return rows.sink_to(hg.sinks.adbc("postgresql", postgres.uri, written))

    error = shown.without_secrets(build, PASSWORD)
    assert isinstance(error, hg.UserFunctionError)
    assert "cannot reach postgresql://***@127.0.0.1" in str(error)
    assert_is_recorded(shown, error)
    assert any(written in text for text in shown.all()), "there are checkpoints, and they name the table"


def test_a_lookup_that_fails_in_a_job_hides_its_password(postgres: Postgres, shown: Shown) -> None:
    asked = postgres.table("u uuid primary key, x text")

    def build(env: hg.StreamEnvironment) -> Any:
        rows = env.from_source(hg.sources.generate(numbers, rate=RATE, batch_rows=10))
        texts = rows.select("n", u="case when n < 200 then '6f1c2f4e-6f0f-4b7e-8f5a-0a3a4b5c6d7e' else 'none' end")
        found = texts.lookup(hg.lookups.adbc("postgresql", postgres.uri, asked), on="u", retries=0)
        return found.sink_to(hg.sinks.null())

    error = shown.without_secrets(build, PASSWORD)
    assert isinstance(error, hg.SourceError)
    assert "invalid input syntax for type uuid" in str(error)
    assert_is_recorded(shown, error)


def test_an_encrypted_job_hides_its_keys(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    issued: list[Identity] = []

    def issue() -> tuple[Identity, Identity]:
        issued.extend(made := genuine())
        return made

    genuine = certificates.issue
    monkeypatch.setattr(certificates, "issue", issue)
    shown.options = {"tls": "on"}
    shown.deployment = hg.LocalDeployment(taskmanagers=2, processes=True)
    error = shown.without_secrets(
        lambda env: failing(env, "nothing").key_by("n").aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    )
    assert isinstance(error, hg.UserFunctionError)
    assert_is_recorded(shown, error)
    assert len(issued) == 2
    keys = [line for identity in issued for line in identity.key.decode().splitlines()[1:-1]]
    assert not any(key in text for key in keys for text in shown.all())
    assert not any("PRIVATE KEY" in f"{identity!r} {identity}" for identity in issued)
