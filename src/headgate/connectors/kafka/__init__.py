"""Kafka: a source and a sink, by librdkafka. The package confluent_kafka is loaded only where it is used."""
