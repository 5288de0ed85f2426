"""Spark Streaming under the load, as a program of its own: `spark_streaming.py LOAD PORT` prints a line per batch."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.storagelevel import StorageLevel
from pyspark.streaming import StreamingContext
from pyspark.streaming.listener import StreamingListener

from headgate.lab.originals.controlled_load import ControlledLoad


class BatchPrinter(StreamingListener):
    """Prints each completed batch, and says when there were enough."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches
        self.ended = threading.Event()

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        batch = batchCompleted.batchInfo()
        row = {
            "rows": batch.numRecords(),
            "scheduling": batch.schedulingDelay() / 1000,
            "processing": batch.processingDelay() / 1000,
        }
        print(json.dumps(row), flush=True)
        self._left -= 1
        if self._left <= 0:
            self.ended.set()


def main() -> None:
    load, port = ControlledLoad.from_text(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")  # the API is deprecated
    context = SparkContext(conf=_configuration(load))
    context.setLogLevel("OFF")
    streaming = StreamingContext(context, load.interval)  # type: ignore[arg-type]  # a fraction is right, too
    printer = BatchPrinter(load.batches)
    streaming.addStreamingListener(printer)
    began = time.time()

    def process(lines: Iterable[str]) -> None:
        load.work(sum(1 for _ in lines), began)

    lines = streaming.socketTextStream("127.0.0.1", port, StorageLevel.MEMORY_ONLY)
    lines.foreachRDD(lambda rows: rows.foreachPartition(process))
    streaming.start()
    printer.ended.wait(load.longest)
    streaming.stop(stopSparkContext=True, stopGraceFully=False)


def _configuration(load: ControlledLoad) -> SparkConf:
    """One core for the receiver, and one for batches of one block. All other values are Spark's defaults."""
    configuration = SparkConf().setMaster("local[2]").setAppName("spark-streaming")
    values = {
        "spark.streaming.backpressure.enabled": "true",
        "spark.streaming.backpressure.initialRate": str(load.initial_rate),
        "spark.streaming.blockInterval": f"{round(load.interval * 1000)}ms",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    return configuration.setAll(list(values.items()))


if __name__ == "__main__":
    main()
