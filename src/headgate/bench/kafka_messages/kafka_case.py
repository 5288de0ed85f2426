"""`kafka`: messages/s from and to a broker of its own, beside a bare loop and Spark; and latencies.

Each rate comes from a small and a large run, so the start-up of a job does not count. Headgate and the bare loop run in
turn. One partition and one subtask: the rates are those of one core. Latency is from the time when a message is due
until a reader with read_committed sees it: messages that a job makes (sink), or that it reads from Kafka (copy).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hdrh.histogram import HdrHistogram

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.idle_timer import lateness_beside
from headgate.bench.kafka_messages.kafka_jobs import (
    CHECKPOINT_INTERVAL,
    copy_paced,
    read_seconds,
    seen_after,
    write_paced,
    write_seconds,
)
from headgate.bench.kafka_messages.kafka_loops import BareLoops, texts
from headgate.bench.peers.kafka_broker import KafkaBroker, NoBroker
from headgate.bench.peers.spark_kafka import SparkKafka
from headgate.bench.report import CaseResult, Figure, Skipped, ratios

SOURCE_TARGET, SINK_TARGET = 0.8, 0.7
#: The messages of both runs. The small run already takes some checkpoint intervals: then both have as much that nothing
#: overlaps, the rows before the first commit and the last commit.
SMALL, LARGE = 2_200_000, 8_800_000
ROUNDS, SPARK_ROUNDS = 5, 2
QUICK_SMALL, QUICK_LARGE = 50_000, 250_000
PACED_RATE, PACED_SECONDS, QUICK_PACED_SECONDS = 20_000.0, 30.0, 6.0
GUARANTEES = ("at-least-once", "exactly-once")
TARGET = f"source at least {SOURCE_TARGET:g}, sinks at least {SINK_TARGET:g} of a bare loop"


@dataclass(slots=True)
class _Measured:
    """What was measured, round by round: messages/s by the name of the figure, further figures, skipped parts."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def rate(self, name: str, sizes: tuple[int, int], seconds: Callable[[int], float]) -> None:
        """Measure messages/s: the difference of the `sizes` of two runs, divided by the difference of their times.

        `seconds(messages)` returns the time of a run.
        """
        small, large = sizes
        self.rates.setdefault(name, []).append((large - small) / (seconds(large) - seconds(small)))

    def ratio(self, name: str, bare: str) -> Figure:
        return Figure(f"{name} / bare", "", ratios(self.rates[name], self.rates[bare]))


def run(options: Options) -> CaseResult:
    """Start a broker, and measure Headgate, the bare loops and Spark."""
    sizes = (QUICK_SMALL, QUICK_LARGE) if options.quick else (SMALL, LARGE)
    measured = _Measured()
    try:
        with KafkaBroker() as broker:
            topics = _Topics(broker.servers)
            given = {size: topics.filled(size) for size in sizes}
            with BareLoops(broker.servers) as bare:
                for number in range(1 if options.quick else ROUNDS):
                    options.say(f"kafka: round {number + 1}")
                    _round(measured, topics, bare, given[sizes[1]], sizes)
                _latencies(measured, topics, bare, options)
                _spark(measured, topics, bare, options, given)
    except NoBroker as error:
        return CaseResult(case="kafka", target=TARGET, met=False, figures=(), skipped=(Skipped("kafka", str(error)),))
    found = [measured.ratio("source", "bare source")]
    found += [measured.ratio(f"sink, {guarantee}", "bare sink") for guarantee in GUARANTEES]
    met = found[0].median >= SOURCE_TARGET and all(each.median >= SINK_TARGET for each in found[1:])
    rates = [Figure(name, "messages/s", tuple(values)) for name, values in measured.rates.items()]
    settings = {"partitions": 1, "parallelism": 1, "messages": sizes[1], "checkpoint_interval": CHECKPOINT_INTERVAL,
                "paced": PACED_RATE}  # fmt: skip
    return CaseResult(case="kafka", target=TARGET, met=met, figures=(*rates, *found, *measured.figures),
                      settings=settings, skipped=tuple(measured.skipped))  # fmt: skip


class _Topics:
    """Makes topics of one partition."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._made = 0
        self._written: list[str] = []

    def new(self) -> str:
        from confluent_kafka.cimpl import NewTopic

        self._made += 1
        name = f"bench-{self._made}"
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(60.0)
        return name

    def to_write(self) -> str:
        """Return a new topic for a run, and delete that of the run before: the runs write some GB each round."""
        for name in self._written:
            self._admin.delete_topics([name])[name].result(60.0)
        self._written = [self.new()]
        return self._written[0]

    def filled(self, messages: int) -> str:
        """Return a new topic with `messages` messages."""
        from confluent_kafka import Producer

        topic, ready = self.new(), texts(messages)
        producer = Producer({"bootstrap.servers": self.servers, "queue.buffering.max.messages": 10_000_000})
        for begin in range(0, messages, 10_000):
            producer.produce_batch(topic, [{"value": text} for text in ready[begin : begin + 10_000]])
        producer.flush()
        return topic


def _round(measured: _Measured, topics: _Topics, bare: BareLoops, given: str, sizes: tuple[int, int]) -> None:
    servers = topics.servers
    measured.rate("bare source", sizes, lambda size: bare.source(given, size))
    measured.rate("source", sizes, lambda size: read_seconds(servers, given, size))
    measured.rate("bare sink", sizes, lambda size: bare.sink(topics.to_write(), size))
    for guarantee in GUARANTEES:
        measured.rate(f"sink, {guarantee}", sizes,
                      lambda size, guarantee=guarantee: write_seconds(servers, topics.to_write(), size, guarantee))  # type: ignore[misc]  # fmt: skip


def _latencies(measured: _Measured, topics: _Topics, bare: BareLoops, options: Options) -> None:
    servers, seconds = topics.servers, _paced_seconds(options)
    for guarantee in GUARANTEES:
        options.say(f"kafka: latency, {guarantee}")
        with lateness_beside() as noise:
            written = write_paced(servers, topics.new(), PACED_RATE, seconds, guarantee)
            copied = copy_paced(bare, (topics.new(), topics.new()), PACED_RATE, seconds, guarantee)
        measured.figures += _percentiles(f"sink, {guarantee}", written) + _percentiles(f"copy, {guarantee}", copied)
        measured.figures.append(_percentile(f"timer p99 beside {guarantee}", noise, 99.0))


def _paced_seconds(options: Options) -> float:
    return QUICK_PACED_SECONDS if options.quick else PACED_SECONDS


def _spark(measured: _Measured, topics: _Topics, bare: BareLoops, options: Options, given: dict[int, str]) -> None:
    options.say("kafka: Spark Structured Streaming")
    servers, seconds = topics.servers, _paced_seconds(options)
    try:
        with SparkKafka(servers, options.say) as spark:
            _spark_rates(measured, topics, spark, options, given)
            topic = topics.new()
            with seen_after(servers, topic, 1 << 60, patience=0.0) as written:
                spark.write_paced(topic, PACED_RATE, seconds)
            source, topic = topics.new(), topics.new()
            with seen_after(servers, topic, 1 << 60, patience=0.0) as copied, bare.paced(source, PACED_RATE, seconds):
                spark.copy(source, topic, seconds)
            measured.figures += _percentiles("Spark sink", written) + _percentiles("Spark copy", copied)
    except ChildFailed as error:
        measured.skipped.append(Skipped("Spark Structured Streaming", str(error)))


def _spark_rates(measured: _Measured, topics: _Topics, spark: SparkKafka, options: Options,
                 given: dict[int, str]) -> None:  # fmt: skip
    small, large = given
    for _ in range(1 if options.quick else SPARK_ROUNDS):
        seconds = {size: spark.read_seconds(topic) for size, topic in given.items()}
        rate = (large - small) / (seconds[large] - seconds[small])
        measured.rates.setdefault("Spark source", []).append(rate)
    measured.rates["Spark sink"] = spark.write_rates(topics.new(), small, 1 if options.quick else ROUNDS)


def _percentiles(name: str, histogram: HdrHistogram) -> list[Figure]:
    return [_percentile(f"{name}: p{percentile:g}", histogram, percentile) for percentile in (50.0, 99.0)]


def _percentile(name: str, histogram: HdrHistogram, percentile: float) -> Figure:
    return Figure(name, "ms", (histogram.get_value_at_percentile(percentile) / 1000,))
