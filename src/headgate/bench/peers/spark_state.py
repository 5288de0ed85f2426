"""The running sum of `rows` with Spark's `transformWithStateInPandas`, in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from headgate.bench.conversation import ChildProcess, serve

WARM_UP = 2
TIMEOUT = 600.0


def spark_rates(rows: int, batches: int, parallelism: int) -> list[float]:
    """Return the rows/s of each of `batches` micro-batches of `rows` rows. Raises ChildFailed."""
    command = [sys.executable, "-P", "-m", "headgate.bench.peers.spark_state"]
    with ChildProcess("Spark transformWithStateInPandas", command) as process:
        answer = process.ask({"rows": rows, "batches": batches, "parallelism": parallelism}, TIMEOUT)
    return [float(rate) for rate in answer["rates"]]


def run(rows: int, batches: int, parallelism: int) -> dict[str, Any]:
    """Run the job in this process, and return the rates for `spark_rates`."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class RunningSum(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "total double")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            total = self.total.get()[0] if self.total.exists() else 0.0
            for frame in rows:
                frame["total"] = frame["value"].cumsum() + total
                total = float(frame["total"].iloc[-1])
                yield frame[["key", "total"]]
            self.total.update((total,))

        def close(self) -> None:
            pass

    os.environ["PYSPARK_PYTHON"] = sys.executable  # its workers need pandas and protobuf
    builder: Any = SparkSession.builder
    spark = (
        builder.master(f"local[{parallelism}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(parallelism))
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as checkpoints:
        source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=parallelism)
        key = (f.col("value") * 2654435761 % (1 << 32) % 1000).alias("key")
        keyed = source.load().select(
            key, (f.col("value") % 1000).cast("double").alias("value"), f.lit("name").alias("name"),
            f.col("timestamp").alias("at"),
        )  # fmt: skip
        sums = keyed.groupBy("key").transformWithStateInPandas(
            statefulProcessor=RunningSum(), outputStructType="key long, total double", outputMode="Update",
            timeMode="None",
        )  # fmt: skip
        writer = sums.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoints)
        query = writer.start()
        while query.isActive and len(query.recentProgress) < WARM_UP + batches:
            time.sleep(0.05)
        failure, progress = query.exception(), query.recentProgress
        query.stop()
        spark.stop()
    if failure is not None:
        raise failure
    measured = [(each["numInputRows"], each["batchDuration"]) for each in progress[WARM_UP : WARM_UP + batches]]
    return {"rates": [1000.0 * count / duration for count, duration in measured if count]}


if __name__ == "__main__":
    serve(lambda request: run(**request))
