"""`headgate connectors`: list the connectors, what each needs, and whether it is installed here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from rich.table import Table

from headgate.json_option import add_json_option, write_json
from headgate.terminal import PlainConsole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connector:
    """A row of the list: a connector, or a part of one that needs other packages. `promise` is for each row. `also` is
    what it needs beside packages."""

    name: str
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    promise: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    also: str = ""
    #: The versions of the packages that are installed here, None for a package that is not.
    installed: dict[str, str | None] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return all(self.installed.values())


#: The module that an extra of a package makes importable.
_MODULES = {"confluent-kafka[schemaregistry]": "confluent_kafka.schema_registry"}
_EXACTLY_ONCE = "exactly once"
_CONNECTORS = (
    _Connector(
        name="files", sources=("csv", "files", "json_lines", "parquet", "text"), sinks=("csv", "json", "parquet"),
        promise=_EXACTLY_ONCE,
    ),
    _Connector(
        name="file sinks and checkpoints on S3", promise=_EXACTLY_ONCE, packages=("boto3",), extra="s3",
        also="credentials of the service",
    ),
    _Connector(
        name="databases", sources=("adbc",), sinks=("adbc",), lookups=("adbc",), promise=_EXACTLY_ONCE,
        packages=("adbc-driver-manager", "adbc-driver-postgresql", "adbc-driver-sqlite"), extra="adbc",
    ),
    _Connector(
        name="Delta Lake", sources=("delta",), sinks=("delta",), promise=_EXACTLY_ONCE,
        packages=("deltalake",), extra="delta",
    ),
    _Connector(
        name="Iceberg", sources=("iceberg",), sinks=("iceberg",), promise=_EXACTLY_ONCE,
        packages=("pyiceberg",), extra="iceberg",
    ),
    _Connector(
        name="Kafka", sources=("kafka",), sinks=("kafka",), promise="exactly once, or at least once",
        packages=("confluent-kafka", "fastavro"), extra="kafka",
    ),
    _Connector(
        name="Kafka: Avro with a schema registry", promise="as Kafka", packages=("confluent-kafka[schemaregistry]",),
        extra="schema-registry", also="a registry",
    ),
    _Connector(
        name="Spark DataFrames", sources=("dataframe",), sinks=("foreach_dataframe",),
        promise="source: exactly once; sink: as the function keeps it", packages=("pyspark",), also="a Spark session",
    ),
    _Connector(
        name="functions", sources=("generate", "iterable", "poll"), sinks=("for_each_batch", "two_phase"),
        promise="as the function keeps it",
    ),
    _Connector(
        name="webhooks", sinks=("webhook",), promise="at least once", packages=("urllib3",), extra="webhook",
    ),
    _Connector(name="sockets", sources=("socket_lines",), promise="may lose or repeat rows"),
    _Connector(
        name="for tests and programs", sources=("nexmark",), sinks=("collect", "null", "printer"),
        promise="collect: exactly once",
    ),
)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns 0."""
    description = "List the connectors, what each needs, and whether it is installed here."
    parser = argparse.ArgumentParser(prog="headgate connectors", description=description)
    add_json_option(parser)
    arguments = parser.parse_args(argv)
    connectors = [_looked_up(connector) for connector in _CONNECTORS]
    write_json(arguments.json, [{**asdict(connector), "is_ready": connector.is_ready} for connector in connectors])
    if arguments.json != "-":
        _show(connectors)
    return 0


def _looked_up(connector: _Connector) -> _Connector:
    return replace(connector, installed={name: _version(name) for name in connector.packages})


def _version(package: str) -> str | None:
    """Return the version of a package `name` or `name[extra]`, or None if the package or the extra is not installed."""
    name, _, extra = package.partition("[")
    try:
        if extra:
            import_module(_MODULES[package])
        return version(name)
    except (PackageNotFoundError, ImportError):
        return None


def _show(connectors: Sequence[_Connector]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("connector", "sources", "sinks", "lookups", "each row", "here"):
        table.add_column(column, overflow="fold")
    for connector in connectors:
        table.add_row(
            connector.name,
            ", ".join(connector.sources),
            ", ".join(connector.sinks),
            ", ".join(connector.lookups),
            connector.promise,
            _state(connector),
        )
    PlainConsole().print(table)


def _state(connector: _Connector) -> str:
    if not connector.is_ready:
        return f"not installed: pip install 'headgate[{connector.extra}]'"
    found = [f"{name} {number}" for name, number in connector.installed.items()]
    return ", ".join([*found, *([f"needs {connector.also}"] if connector.also else [])]) or "yes"
