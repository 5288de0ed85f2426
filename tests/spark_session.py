"""The Spark session that tests share: starting one costs seconds, and only one can live in a process."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.spark.session import build_session

#: Small, so that rows which are not to come to the driver would be noticed there; and few partitions for few rows.
SETTINGS = {
    "spark.driver.maxResultSize": "16m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",  # as in Spark 4; 3.5 refuses timestamps before 1900
}


class SharedSpark:
    """At most one running session. Ask for it in each test: another test may have stopped it."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None

    def on(self, master: str) -> SparkSession:
        """A session of this master: the running one, or else one that takes its place."""
        if self._session is None or self._session.sparkContext.master != master:
            self.stop()
            self._session = build_session(master, "headgate tests", **SETTINGS)
        return self._session

    def stop(self) -> None:
        """For who builds one of his own."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def to_arrow(dataframe: DataFrame) -> pa.Table:
    """As `DataFrame.toArrow` of PySpark 4."""
    return pa.Table.from_batches(dataframe._collect_as_arrow())  # type: ignore[operator]
