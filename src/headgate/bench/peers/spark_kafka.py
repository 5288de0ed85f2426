"""Spark Structured Streaming with Kafka, for `kafka`. `SparkKafka` runs this module in its own process.

Maven fetches the jars of Spark's Kafka source on first use. If the jars for the installed Spark are not known, the
process runs in an environment of scripts/compat with another Spark, which is built on first use.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headgate.bench.conversation import ChildFailed, ChildProcess, serve
from headgate.bench.peers.maven import NoJars, UnknownJars, are_known, jars

TIMEOUT = 600.0
#: The environment of scripts/compat with the newest Spark whose jars are known.
ENVIRONMENT: Final = "spark-4.2"
_WHICH: Final = "import sys, pyspark; print(sys.executable, pyspark.__version__)"
#: Seconds that the environment may take to be built.
_BUILD: Final = 900.0
SCHEMA = "id bigint, city string, price double, due bigint"
#: A message of `kafka_loops.texts`, in SQL.
CITY = "element_at(array('Rome', 'Oslo', 'Lima', 'Bern'), cast(value % 4 + 1 as int)) as city"
PRICE, DUE = "value % 1000 + 0.25D as price", "unix_micros(timestamp) as due"
MESSAGE = f"to_json(struct(value as id, {CITY}, {PRICE}, {DUE})) as value"
WARM_UP = 2


class SparkKafka:
    """A Spark in its own process. Use it as a context manager. Methods raise ChildFailed if Spark cannot run."""

    def __init__(self, servers: str, say: Callable[[str], None]) -> None:
        python, version = installed_spark(Path(__file__), say)
        try:
            self._jars = spark_jars(version)
        except (NoJars, UnknownJars) as error:
            raise ChildFailed(error.message) from None
        self._servers = servers
        command = [python, "-P", "-m", "headgate.bench.peers.spark_kafka"]
        self._process = ChildProcess("Spark Structured Streaming", command)

    def read_seconds(self, topic: str) -> float:
        """Return the seconds of a query that reads and parses all messages of a topic, its start-up included."""
        return float(self._ask(do="read", topic=topic)["value"])

    def write_rates(self, topic: str, rows: int, batches: int) -> list[float]:
        """Return the messages/s of micro-batches of `rows` messages."""
        return list(self._ask(do="write", topic=topic, rows=rows, batches=batches)["value"])

    def write_paced(self, topic: str, rate: float, seconds: float) -> None:
        """Write at `rate` messages/s for some seconds."""
        self._ask(do="pace", topic=topic, rate=rate, seconds=seconds)

    def copy(self, given: str, topic: str, seconds: float) -> None:
        """For some seconds, parse the messages that come to one topic, and write them to another."""
        self._ask(do="copy", given=given, topic=topic, seconds=seconds)

    def _ask(self, **request: Any) -> dict[str, Any]:
        return self._process.ask({"servers": self._servers, "jars": self._jars, **request}, TIMEOUT)

    def __enter__(self) -> SparkKafka:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()


def installed_spark(inside: Path, say: Callable[[str], None]) -> tuple[str, str]:
    """Return a Python, and the version of its Spark, whose jars are known. Raises ChildFailed.

    It is this Python, or that of ENVIRONMENT in the checkout that `inside` is in.
    """
    version = importlib.metadata.version("pyspark")
    if are_known(_set_of(version)):
        return sys.executable, version
    scripts = (folder / "scripts" / "compat" for folder in inside.parents)
    script = next((each for each in scripts if each.exists()), None)
    if script is None:
        raise ChildFailed(f"the jars for Spark {version} are not known, and there is no checkout with scripts/compat")
    say(f"Spark {version} has no known jars for Kafka: taking {ENVIRONMENT} of scripts/compat (built once; about 1 GB)")
    command = [str(script), "run", ENVIRONMENT, "python", "-c", _WHICH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD, check=False)
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"scripts/compat run {ENVIRONMENT} took more than {_BUILD:g} s") from None
    if done.returncode:
        raise ChildFailed(f"scripts/compat cannot build {ENVIRONMENT}: {done.stderr.strip()[-500:]}")
    python, version = done.stdout.split()[-2:]
    return python, version


def _set_of(version: str) -> str:
    """Return the name of the jars for a version of Spark. They are those of the first release with the same minor
    version, because Maven lacks some of the later ones."""
    major, minor = version.split(".")[:2]
    return f"spark-kafka-{major}.{minor}.0"


def spark_jars(version: str) -> list[str]:
    """Return the jars of the Kafka source for a version of Spark. Raises NoJars and UnknownJars."""
    name = _set_of(version)
    scala = "2.12" if name.startswith("spark-kafka-3.") else "2.13"
    coordinates = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{name.rpartition('-')[2]}"
    folder = jars(name, coordinates, without="org.apache.hadoop,org.scala-lang,org.slf4j")
    return sorted(map(str, folder.glob("*.jar")))


def _session(jars: list[str]) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    return (
        builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )


def _parsed(spark: Any, servers: str, topic: str) -> Any:
    """Return the stream of a topic's messages, each as the struct `row`."""
    from pyspark.sql import functions as f

    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    row = f.from_json(f.col("value").cast("string"), SCHEMA).alias("row")
    return stream.option("startingOffsets", "earliest").load().select(row)


def _read(spark: Any, servers: str, topic: str) -> float:
    rows = _parsed(spark, servers, topic)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        query = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        return time.perf_counter() - began


def _write(spark: Any, servers: str, topic: str, rows: int, batches: int) -> list[float]:
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=1)
    with tempfile.TemporaryDirectory() as folder:
        query = _to_kafka(source.load().selectExpr(MESSAGE), servers, topic, folder)
        while query.isActive and len(query.recentProgress) < WARM_UP + batches:
            time.sleep(0.05)
        progress = [(batch["numInputRows"], batch["batchDuration"]) for batch in query.recentProgress]
        query.stop()
    return [1000.0 * count / duration for count, duration in progress[WARM_UP : WARM_UP + batches] if count]


def _pace(spark: Any, servers: str, topic: str, rate: float, seconds: float) -> None:
    source = spark.readStream.format("rate").options(rowsPerSecond=round(rate), numPartitions=1)
    with tempfile.TemporaryDirectory() as folder:
        query = _to_kafka(source.load().selectExpr(MESSAGE), servers, topic, folder)
        time.sleep(seconds)
        query.stop()


def _copy(spark: Any, servers: str, given: str, topic: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        messages = _parsed(spark, servers, given).selectExpr("to_json(row) as value")
        query = _to_kafka(messages, servers, topic, folder)
        time.sleep(seconds)
        query.stop()


def _to_kafka(messages: Any, servers: str, topic: str, folder: str) -> Any:
    writer = messages.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", topic).option("checkpointLocation", folder).start()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    spark = _session(request.pop("jars"))
    call: Any = {"read": _read, "write": _write, "pace": _pace, "copy": _copy}[request.pop("do")]
    return {"value": call(spark, **request)}


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    serve(_answer)
