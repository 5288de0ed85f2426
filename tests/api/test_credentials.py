"""Credentials in URIs are refused before they are stored, and are never shown."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.checkpoints_command import main
from headgate.errors import HeadgateError, to_wire
from headgate.redaction import has_credentials, redacted

HELD = [
    "s3://AKIAKEY:s3cr3tvalue@bucket/folder",
    "s3://AKIAKEY:s3cr3t/value+x=@bucket/folder",
    "s3://AKIAKEY:s3cr3t%2Fvalue@bucket/folder?region=eu",
    "hdfs://user:s3cr3t@host:8020/folder",
    "https://:s3cr3t@host/folder",
    "s3://bucket/folder?access_key=AKIAKEY&secret_key=s3cr3t",
    "s3://bucket?X-Amz-Security-Token=s3cr3t",
    "abfs://container@account.dfs.core.windows.net/a?sig=s3cr3t&se=1",
    "gs://bucket/x?access_token=s3cr3t",
]
PLAIN = [
    "s3://bucket/folder?region=eu&endpoint_override=localhost:9000", "hdfs://host:8020/user@x/a", "hdfs://user@host:8020/",
    "abfs://container@account.dfs.core.windows.net/a", "file:///a:b@c", "/a/b:c@d?sig=x", "spark://127.0.0.1:7077",
    "gs://bucket/x?signed=no",
]  # fmt: skip
SECRETS = ("s3cr3t", "AKIAKEY")


@pytest.mark.parametrize("uri", HELD)
def test_credentials_are_found_and_left_out(uri: str) -> None:
    assert has_credentials(uri)
    shown = redacted(f"cannot read '{uri}': no; {uri}")
    assert "s3cr3t" not in shown
    assert shown.count("***") >= 2
    assert shown.startswith("cannot read '")


@pytest.mark.parametrize("uri", PLAIN)
def test_a_uri_without_credentials_is_unchanged(uri: str) -> None:
    assert not has_credentials(uri)
    assert redacted(uri) == uri


@pytest.mark.turns(2)
@pytest.mark.timeout(60)  # in quadratic time they take hours
@pytest.mark.parametrize(
    "text",
    ["://a:" * 200_000, "://" * 300_000, "?sig" * 300_000, "://x?" + "secret" * 200_000],
    ids=["passwords", "schemes", "signatures", "secrets"],
)
def test_redaction_takes_linear_time(text: str) -> None:
    redacted(text)


TAKERS: dict[str, Callable[[str], Any]] = {
    "checkpoint_dir": lambda uri: hg.Config(checkpoint_dir=uri),
    "spill_dir": lambda uri: hg.Config(spill_dir=uri),
    "csv": lambda uri: hg.sources.csv(uri),
    "a list": lambda uri: hg.sources.parquet(["/a", uri]),
    "watched": lambda uri: hg.sources.files(uri, watch=True),
    "parquet sink": lambda uri: hg.sinks.parquet(uri),
    "headgate checkpoints": lambda uri: main(["list", uri]),
}


@pytest.mark.parametrize("uri", HELD)
@pytest.mark.parametrize("taker", TAKERS)
def test_every_call_refuses_a_uri_with_credentials(taker: str, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(hg.ConfigError, match="holds credentials, .* set them in the environment") as caught:
        TAKERS[taker](uri)
    captured = capsys.readouterr()
    shown = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value) + captured.out + captured.err
    assert not any(secret in shown for secret in SECRETS)


def test_savepoint_and_resume_refuse_a_uri_with_credentials(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(1, processes=False))
    rows = env.from_source(hg.sources.files(tmp_path, watch=True))
    for uri in HELD:
        rows.sink_to(hg.sinks.null())
        with pytest.raises(hg.ConfigError, match="holds credentials"):
            env.execute("refused", resume=uri)
    rows.sink_to(hg.sinks.null())
    job = env.execute_async("runs")
    for uri in HELD:
        with pytest.raises(hg.ConfigError, match="holds credentials"):
            job.savepoint(uri)
    job.cancel()
    assert not any(secret in caplog.text for secret in SECRETS)


def test_no_error_shows_credentials() -> None:
    for uri in HELD:
        error = HeadgateError(f"failed: OSError: When reading {uri}: AWS Error").at(operator="x")
        assert "s3cr3t" not in f"{error} {error!r} {to_wire(error)} {error.args}"
