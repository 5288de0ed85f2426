"""Where the windows of the schedules go, and what readers see there: Kafka, PostgreSQL, Delta and Iceberg."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.connectors.kafka.commits_topic import PARTITIONS
from headgate.connectors.kafka.commits_topic import TOPIC as COMMITS
from headgate.connectors.kafka.kafka_client import KafkaClient
from headgate.connectors.kafka.kafka_offsets import Offsets
from tests.kafka_broker import Broker, values
from tests.postgres_server import postgres_or_skip

#: A key, the start of a window in milliseconds since 1970, and the rows in it.
Window = tuple[int, int, int]


class Place(ABC):
    """A new place for the results of one schedule."""

    #: What the program needs to know of it.
    spec: dict[str, Any]
    #: About how many lines of the sink's code a commit runs.
    lines: int

    @abstractmethod
    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows that readers see."""

    def seen(self) -> Counter[Window]:
        """Return the windows that readers see, and how often."""
        return Counter((row["key"], _milliseconds(row["window_start"]), row["rows"]) for row in self._rows())

    def is_open(self) -> bool:
        """Return whether a transaction is left open."""
        return False

    @property
    def faults(self) -> dict[str, Callable[[], AbstractContextManager[None]]]:
        """Faults of the server that has the results, for the time of a block."""
        return {}

    def close(self) -> None:
        """Nothing is left to end."""


class KafkaTopic(Place):
    lines = 280

    def __init__(self, broker: Broker, servers: str, folder: Path) -> None:
        self._broker, self._topic = broker, broker.topic(2)
        self.spec = {"kind": "kafka", "servers": servers, "topic": self._topic}

    def _rows(self) -> list[dict[str, Any]]:
        return [json.loads(value) for value in values(self._broker.messages(self._topic, 2))]

    def is_open(self) -> bool:
        client, places = KafkaClient(self._broker.servers, {}), [(self._topic, number) for number in range(2)]
        places += [(COMMITS, number) for number in range(PARTITIONS)]
        committed, everything = (Offsets(client, read_committed=flag).latest(places) for flag in (True, False))
        return committed != everything


class PostgresTable(Place):
    lines = 190

    def __init__(self, broker: Broker, servers: str, folder: Path) -> None:
        self._server = postgres_or_skip()
        self._table = self._server.table("key bigint, window_start timestamptz, rows bigint")
        self.spec = {"kind": "postgresql", "uri": self._server.uri, "table": self._table}

    def _rows(self) -> list[dict[str, Any]]:
        return self._server.rows(f"select * from {self._table}")

    def is_open(self) -> bool:
        return bool(self._server.rows("select 1 as one from pg_stat_activity where state like 'idle in transaction%'"))

    @property
    def faults(self) -> dict[str, Callable[[], AbstractContextManager[None]]]:
        return {
            "PostgreSQL crashes": self._crashed,
            "PostgreSQL restarts": self._restarted,
            "connections to PostgreSQL are cut": self._cut,
        }

    @contextmanager
    def _crashed(self) -> Iterator[None]:
        self._server.crash()
        yield
        self._server.start()

    @contextmanager
    def _restarted(self) -> Iterator[None]:
        self._server.stop()
        yield
        self._server.start()

    @contextmanager
    def _cut(self) -> Iterator[None]:
        others = "pid != pg_backend_pid() and backend_type = 'client backend'"
        self._server.rows(f"select count(pg_terminate_backend(pid)) as ended from pg_stat_activity where {others}")
        yield

    def close(self) -> None:
        self._server.close()


class DeltaTable(Place):
    lines = 90

    def __init__(self, broker: Broker, servers: str, folder: Path) -> None:
        self._library = pytest.importorskip("deltalake")
        self._path = str(folder / "table")
        self.spec = {"kind": "delta", "path": self._path}

    def _rows(self) -> list[dict[str, Any]]:
        if not self._library.DeltaTable.is_deltatable(self._path):
            return []
        rows: list[dict[str, Any]] = self._library.DeltaTable(self._path).to_pyarrow_table().to_pylist()
        return rows


class IcebergTable(Place):
    lines = 120

    def __init__(self, broker: Broker, servers: str, folder: Path) -> None:
        pytest.importorskip("pyiceberg.catalog.sql")
        from tests.tables.test_iceberg_sink import Lake

        self._lake = Lake(folder)
        self.spec = {"kind": "iceberg", "table": "lake.windows", "options": self._lake.options}

    def _rows(self) -> list[dict[str, Any]]:
        return self._lake.read("windows")


PLACES: dict[str, type[Any]] = {
    "Kafka": KafkaTopic,
    "PostgreSQL": PostgresTable,
    "Delta": DeltaTable,
    "Iceberg": IcebergTable,
}


def _milliseconds(time: str | datetime) -> int:
    at = datetime.fromisoformat(time) if isinstance(time, str) else time
    return round(at.astimezone(UTC).timestamp() * 1000)
