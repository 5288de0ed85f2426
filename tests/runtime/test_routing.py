"""The selector of an exchange, with the partition it distributes to."""

from __future__ import annotations

from headgate.exchange.selectors import Forward
from headgate.operators.operator import OperatorContext
from headgate.plan.graph import LOAD_AWARE
from headgate.plan.job_graph import JobEdge
from headgate.runtime.task.routing import selector_of
from tests.exchange.link import write_bytes
from tests.exchange.rig import Rig, poll_one, rows

SEGMENT = 64


def test_load_aware_rebalance_skips_a_channel_without_a_reader() -> None:
    rig = Rig(Forward(), channels=3, segment=SEGMENT)
    edge = JobEdge(id=0, source=0, source_node=0, target=1, target_input=0, partitioning=LOAD_AWARE)
    selector = selector_of(edge, rig.partition, OperatorContext("job", "operator", 0, 1), None)
    went = []
    for _ in range(8):
        ((channel, _),) = selector.select(rows(0, 1))
        went.append(channel)
        write_bytes(rig.partition, channel, bytes(SEGMENT))
        for read in (0, 2):
            while polled := poll_one(rig.partition.subpartition(read)):
                polled.buffer.recycle()
    assert went == [0, 1, 2, 0, 2, 0, 2, 0]
    rig.close()
