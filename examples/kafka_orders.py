"""Count the orders in a Kafka topic, and write the counts to another: `kafka_orders.py [host:port of a broker]`."""

import json
import sys
import uuid

import pyarrow as pa
from confluent_kafka import Producer

import headgate as hg

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = f"orders-{uuid.uuid4().hex[:8]}"
COUNTS = f"counts-{uuid.uuid4().hex[:8]}"

producer = Producer({"bootstrap.servers": SERVERS})
for number in range(1000):
    producer.produce(TOPIC, json.dumps({"id": number, "city": ["Rome", "Oslo"][number % 2]}))
producer.flush()

env = hg.StreamEnvironment(parallelism=2)
orders = env.from_source(
    hg.sources.kafka(SERVERS, TOPIC, schema=pa.schema({"id": pa.int64(), "city": pa.string()}), stop="latest")
)
producer.list_topics(COUNTS, timeout=30)  # makes the topic, where brokers allow it
orders.key_by("city").aggregate(final=True, orders=hg.count()).sink_to(hg.sinks.kafka(SERVERS, COUNTS, key="city"))
env.execute("orders by city")
schema = pa.schema({"city": pa.string(), "orders": pa.int64()})
counts = env.from_source(hg.sources.kafka(SERVERS, COUNTS, schema=schema, stop="latest")).collect()
print({row["city"]: row["orders"] for row in sorted(counts.to_pylist(), key=lambda row: row["city"])})
