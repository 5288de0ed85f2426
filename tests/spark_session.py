"""The Spark session that tests share: starting one costs seconds, and only one can live in a process."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.spark.session import build_session

#: A small limit on results makes a test fail if rows come to the driver that should not; few rows need few partitions.
SETTINGS = {
    "spark.driver.maxResultSize": "16m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",  # as in Spark 4; 3.5 refuses timestamps before 1900
}


class SharedSpark:
    """The holder of at most one running session. Each test asks for it: another test may have stopped it."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None

    def on(self, master: str) -> SparkSession:
        """Return a session with this master: the running one, or a new one in its place."""
        if self._session is None or self._session.sparkContext.master != master:
            self.stop()
            self._session = build_session(master, "headgate tests", **SETTINGS)
        return self._session

    def stop(self) -> None:
        """Stop the session, if there is one; a test that builds a session of its own calls this first."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def to_arrow(dataframe: DataFrame) -> pa.Table:
    """Return the rows as a table, as `DataFrame.toArrow` does in PySpark 4."""
    return pa.Table.from_batches(dataframe._collect_as_arrow())  # type: ignore[operator]
