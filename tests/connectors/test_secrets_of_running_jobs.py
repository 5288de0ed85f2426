"""Jobs with secrets that run for a while, and then fail: the secrets show nowhere, not in the recording either."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import headgate as hg
from headgate.protocol.handshake import Identity
from headgate.runtime.master import certificates
from tests.connectors.recorded_failures import RATE, ROWS, assert_is_recorded, failing, numbers, record_in
from tests.connectors.shown import SECRET, Shown
from tests.postgres_server import PASSWORD, Postgres
from tests.webhook.webhook_service import Answer, running


@pytest.fixture(autouse=True)
def recordings(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    record_in(shown.folder, monkeypatch)


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
        texts = rows.select("n", u=f"case when n < {ROWS} then '6f1c2f4e-6f0f-4b7e-8f5a-0a3a4b5c6d7e' else 'none' end")
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


def test_a_job_with_a_webhook_hides_its_address_and_headers(shown: Shown) -> None:
    token, basic = "hush-token-4712", base64.b64encode(f"user:{SECRET}".encode()).decode()
    headers = {"Authorization": f"Bearer {token}", "Proxy-Authorization": f"Basic {basic}"}
    with running() as service:
        told = f"no hook {SECRET} for {token}, {basic}".encode()
        service.answers = [*[Answer()] * 80, Answer(400, {}, told)]

        def build(env: hg.StreamEnvironment) -> Any:
            rows = env.from_source(hg.sources.generate(numbers, rate=RATE, batch_rows=10))
            return rows.sink_to(hg.sinks.webhook(f"{service.url}/services/{SECRET}?token={token}", headers=headers))

        error = shown.without_secrets(build, SECRET, token, basic)
    assert isinstance(error, hg.SinkError)
    assert "no hook *** for ***, ***" in str(error)
    assert_is_recorded(shown, error)
