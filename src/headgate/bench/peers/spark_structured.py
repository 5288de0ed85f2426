"""`keyed-sum` on Spark Structured Streaming. `spark_rates` runs this module with `python -m` in its own process.

The `rate-micro-batch` source makes micro-batches of `rows` rows, and moves event time by one second each batch. The
rate of a batch is its rows divided by its duration. The first batches do not count, because Spark starts and compiles
during them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

from headgate.bench.conversation import ChildProcess, serve

WARM_UP = 3
TIMEOUT = 300.0


def spark_rates(rows: int, batches: int, parallelism: int) -> list[float]:
    """Return the rows/s of each of `batches` micro-batches of `rows` rows. Raises ChildFailed."""
    command = [sys.executable, "-P", "-m", "headgate.bench.peers.spark_structured"]
    with ChildProcess("Spark Structured Streaming", command) as process:
        request = {"rows": rows, "batches": batches, "parallelism": parallelism}
        return list(process.ask(request, TIMEOUT)["rates"])


def run(rows: int, batches: int, parallelism: int) -> list[float]:
    """Run the job in this process, and return the rates for `spark_rates`."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    builder: Any = SparkSession.builder
    spark = (
        builder.master(f"local[{parallelism}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(parallelism))
        .config("spark.sql.streaming.numRecentProgressUpdates", str(WARM_UP + batches + 100))
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as checkpoints:
        source = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=rows, numPartitions=parallelism, advanceMillisPerBatch=1000
        )
        keyed = source.load().select((f.rand() * 1000).cast("long").alias("k"), f.rand().alias("v"), "timestamp")
        sums = keyed.withWatermark("timestamp", "0 seconds").groupBy(f.window("timestamp", "1 second"), "k")
        writer = sums.agg(f.sum("v"), f.count("*")).writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", checkpoints).start()
        while query.isActive and len(query.recentProgress) < WARM_UP + batches:
            time.sleep(0.05)
        progress = [(batch["numInputRows"], batch["batchDuration"]) for batch in query.recentProgress]
        query.stop()
        spark.stop()
    return [1000.0 * count / duration for count, duration in progress[WARM_UP : WARM_UP + batches] if count]


if __name__ == "__main__":
    serve(lambda request: {"rates": run(**request)})
