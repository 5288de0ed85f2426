"""The program on the page about Kafka runs with a real broker, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.kafka_broker import Broker
from tests.page_blocks import read, run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kafka.md"


def test_the_code_of_the_page_runs(kafka: Broker, tmp_path: Path) -> None:
    text = PAGE.read_text().replace("localhost:9092", kafka.servers)
    assert kafka.servers in text
    run(read(text), tmp_path)
