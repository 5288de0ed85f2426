"""`headgate connectors` lists every source and sink."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import headgate as hg
from headgate import cli, connectors_command

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def report(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert cli.main(["connectors", "--json", "-"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_every_source_and_sink_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys)
    for kind in ("sources", "sinks", "lookups"):
        names = [name for connector in found for name in connector[kind]]  # type: ignore[attr-defined]
        assert sorted(names) == sorted(getattr(hg, kind).__all__)


def test_the_packages_are_those_of_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    for connector in report(capsys):
        if extra := connector["extra"]:
            requirements = PYPROJECT["project"]["optional-dependencies"][extra]
            assert set(connector["installed"]) == {requirement.partition(">=")[0] for requirement in requirements}  # type: ignore[call-overload]


def test_the_table_says_what_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def without_delta(package: str) -> str:
        if package == "deltalake":
            raise PackageNotFoundError(package)
        return version(package)

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(connectors_command, "version", without_delta)
    assert cli.main(["connectors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [delta] = [line for line in lines if line.startswith("Delta Lake")]
    assert "not installed: pip install 'headgate[delta]'" in delta
    [spark] = [line for line in lines if line.startswith("Spark")]
    assert f"pyspark {version('pyspark')}, needs a Spark session" in spark


def test_options_that_need_more_are_listed_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    pytest.importorskip("confluent_kafka.schema_registry")
    found = {str(connector["name"]): connector for connector in report(capsys)}
    assert found["file sinks and checkpoints on S3"]["installed"] == {"boto3": version("boto3")}
    registry = found["Kafka: Avro with a schema registry"]
    assert registry["installed"] == {"confluent-kafka[schemaregistry]": version("confluent-kafka")}
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)  # as without the packages of the extra
    [registry] = [connector for connector in report(capsys) if connector["extra"] == "schema-registry"]
    assert registry["is_ready"] is False
