"""The broker of the tests."""

from __future__ import annotations

import pytest

from headgate.bench.peers.kafka_broker import BrokerFailed
from tests.kafka_broker import broker_or_skip


def test_a_wrong_property_fails_a_test_and_skips_none() -> None:
    with pytest.raises(BrokerFailed, match="no-role"):
        broker_or_skip(None, **{"process.roles": "no-role"})
