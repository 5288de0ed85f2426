"""The broker of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys

import psutil
import pytest

from headgate.bench.peers.kafka_broker import BrokerFailed
from tests.kafka_broker import broker_or_skip


def test_a_wrong_property_fails_a_test_and_skips_none() -> None:
    with pytest.raises(BrokerFailed, match="no-role"):
        broker_or_skip(None, **{"process.roles": "no-role"})


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="only Linux ends a process with its parent")
def test_a_broker_ends_with_a_program_that_is_killed() -> None:
    program = """
from headgate.bench.peers.kafka_broker import KafkaBroker, SMALL_JAVA
broker = KafkaBroker(SMALL_JAVA, {}, {})
print(broker.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        line = owner.stdout.readline()
        if not line:
            pytest.skip("there is no broker on this machine")
        broker = psutil.Process(int(line))
        owner.kill()
        broker.wait(timeout=20)
