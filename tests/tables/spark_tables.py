"""Spark 4.0 with the libraries of Delta and Iceberg, in the environment `spark-4.0` of scripts/compat.

`SparkTables` runs this module as a program there: the tests' own environment has a newer Spark, for which these
libraries have no release.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from headgate.bench.conversation import ChildProcess, serve
from headgate.bench.peers.maven import NoJars, jars

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = "spark-4.0"
#: What Spark loads, by the name of the folder with the jars. SQLite is the catalog of the Iceberg tables.
LIBRARIES: Final = {
    "delta-spark-4.0.0": "io.delta:delta-spark_2.13:4.0.0",
    "iceberg-spark-runtime-4.0-1.11.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "sqlite-jdbc-3.50.3.0": "org.xerial:sqlite-jdbc:3.50.3.0",
}
#: What Spark has already.
WITHOUT: Final = "org.antlr,org.apache.spark,org.scala-lang,org.slf4j"
#: Seconds that the environment may take to be built, and a statement to run.
_BUILD, _STATEMENT = 700.0, 180.0
_ICEBERG: Final = "org.apache.iceberg.spark"
_EXTENSIONS: Final = (
    "io.delta.sql.DeltaSparkSessionExtension", f"{_ICEBERG}.extensions.IcebergSparkSessionExtensions",
)  # fmt: skip


class SparkTables:
    """A Spark in its own process. `lake` is the folder of the Iceberg catalog `test`, with `catalog.db` and `lake`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._results = 0
        command = [python_or_skip(), "-P", __file__, str(folder), *jars_or_skip()]
        self._process = ChildProcess("Spark 4.0", command)

    def rows(self, statement: str) -> pa.Table:
        """Run a statement of Spark SQL, and return its rows."""
        self._results += 1
        into = self._folder / f"result-{self._results}.arrow"
        self._process.ask({"statement": statement, "into": str(into)}, _STATEMENT)
        with pa.ipc.open_file(into) as file:
            return file.read_all()

    def run(self, statement: str) -> None:
        """Run a statement that changes a table."""
        self._process.ask({"statement": statement}, _STATEMENT)

    def close(self) -> None:
        """End Spark."""
        self._process.close()


def python_or_skip() -> str:
    """Return the Python of the environment, which is built if it must be. Skip the test if it cannot be built."""
    command = ["scripts/compat", "run", ENVIRONMENT, "python", "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_BUILD, check=False)
    if done.returncode:
        pytest.skip(f"no environment {ENVIRONMENT} on this machine, so this is not tested: {done.stderr[-500:]}")
    return done.stdout.split()[-1]


def jars_or_skip() -> Sequence[str]:
    """Return the jars of Delta, Iceberg and SQLite. Skip the test if they cannot be fetched."""
    try:
        folders = [jars(name, coordinates, WITHOUT) for name, coordinates in LIBRARIES.items()]
    except NoJars as error:
        pytest.skip(f"Spark's libraries of tables are not here, so this is not tested: {error}")
    return [str(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]


# --- what runs in Spark's process


def _session(folder: str, paths: Sequence[str]) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    settings = {
        "spark.jars": ",".join(paths),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/spark",
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.test": f"{_ICEBERG}.SparkCatalog",
        "spark.sql.catalog.test.type": "jdbc",
        "spark.sql.catalog.test.uri": f"jdbc:sqlite:{folder}/catalog.db",
        "spark.sql.catalog.test.warehouse": f"file://{folder}/lake",
        "spark.sql.catalog.test.cache-enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.master("local[2]").getOrCreate()


def _main(folder: str, *paths: str) -> None:
    session = _session(folder, paths)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        rows = session.sql(request["statement"])
        if "into" in request:
            table = rows.toArrow()
            with pa.ipc.new_file(request["into"], table.schema) as file:
                file.write_table(table)
        return {}

    serve(answer)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _main(*sys.argv[1:])
