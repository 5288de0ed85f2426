"""Count the orders in a Kafka topic. Needs a broker: `kafka_orders.py [host:port]`, by default localhost:9092."""

import json
import sys
import uuid

import pyarrow as pa
from confluent_kafka import Producer

import headgate as hg

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = f"orders-{uuid.uuid4().hex[:8]}"

producer = Producer({"bootstrap.servers": SERVERS})
for number in range(1000):
    producer.produce(TOPIC, json.dumps({"id": number, "city": ["Rome", "Oslo"][number % 2]}))
producer.flush()

env = hg.StreamEnvironment(parallelism=2)
orders = env.from_source(
    hg.sources.kafka(SERVERS, TOPIC, schema=pa.schema({"id": pa.int64(), "city": pa.string()}), stop="latest")
)
counts = orders.key_by("city").aggregate(final=True, orders=hg.count()).collect()
print({row["city"]: row["orders"] for row in sorted(counts.to_pylist(), key=lambda row: row["city"])})
