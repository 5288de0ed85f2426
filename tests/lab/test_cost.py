"""`cost`, small: both modes carry the rows, credit with a few more frames and control messages; and the verdict."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.bench.exchange import end, rate
from headgate.config import Config, FlowControl
from headgate.lab import cost
from headgate.lab.cost import CREDIT, DEFAULT, SIZES, TCP
from headgate.protocol.messages import BUFFER_RESPONSE_ID, FRAME, MAX_RUN, AddCredit, PartitionRequest
from tests.exchange.shared_link import SEGMENT, SharedLink


def test_a_channel_runs_in_both_modes() -> None:
    with end("producer", 0) as producer, end("consumer", 1) as consumer:
        for buffers in SIZES.values():
            for mode in (CREDIT, TCP):
                assert rate(producer, consumer, 2 << 20, {**buffers, "flow_control": mode}) > 0


class Link(SharedLink):
    """One channel with the same buffers at either end; it keeps the bytes that cross the connection."""

    def __init__(self, mode: str, buffers: int) -> None:
        super().__init__(FlowControl(mode), [1], [buffers], extra=buffers - 2, cap=buffers)
        self.sent, self.asked = bytearray(), bytearray()

    def write_socket(self, count: int) -> None:
        before = len(self.to_consumer)
        super().write_socket(count)
        self.sent += self.to_consumer[before:]

    def send_control(self) -> None:
        before = len(self.to_producer)
        super().send_control()
        self.asked += self.to_producer[before:]

    def carry(self, count: int) -> None:
        """Carry `volume` bytes at full speed: the producer fills free buffers, the consumer reads what has arrived."""
        left = count
        while len(self.read[0]) < count:
            left -= self.write(0, left)
            self.settle()
            while self.consume(0, MAX_RUN):
                pass
            while self.held:
                self.recycle()


def messages_in(stream: bytes) -> Counter[int]:
    """Return the number of messages by id."""
    found: Counter[int] = Counter()
    while stream:
        length, _, message_id = FRAME.unpack_from(stream)
        found[message_id] += 1
        stream = stream[length:]
    return found


@pytest.mark.parametrize("size", SIZES)
def test_what_credit_costs_in_messages(size: str) -> None:
    """Without credit a channel sends one frame each time its buffers are full. With credit it sends a few more, since
    no frame uses more than half of the credit, and at most one control message for each."""
    config, rounds = Config(**SIZES[size]), 10
    buffers = min(MAX_RUN, config.buffers_per_channel + config.floating_buffers_per_gate)
    sent, asked = {}, {}
    for mode in (CREDIT, TCP):
        link = Link(mode, buffers)
        link.carry(rounds * buffers * SEGMENT)
        sent[mode], asked[mode] = messages_in(bytes(link.sent)), messages_in(bytes(link.asked))
        link.run_to_the_end(0)
        link.close()
    assert asked[TCP] == {PartitionRequest.id: 1}
    assert asked[CREDIT].keys() == {PartitionRequest.id, AddCredit.id}
    assert sent[TCP].keys() == sent[CREDIT].keys() == {BUFFER_RESPONSE_ID}
    assert sent[TCP].total() == rounds
    frames = 3 if size == DEFAULT else 5
    assert asked[CREDIT].total() - 1 <= sent[CREDIT].total() <= frames * rounds


@pytest.mark.parametrize(("credit", "met"), [(0.95, True), (0.949, False)])
def test_the_verdict_is_on_the_buffers_with_which_credit_carries_most(credit: float, met: bool) -> None:
    """The default does not count, however much it carries."""
    rates = {(size, mode): [1e9, 2e9, 3e9] for size in SIZES for mode in (TCP, CREDIT)}
    rates["64 buffers", CREDIT] = [1e8, 2e8, 3e8]
    rates["256 buffers", TCP] = [4e9, 4e9, 4e9]
    rates["256 buffers", CREDIT] = [4e9 * credit, 4e9 * credit, 1e9]
    rates[DEFAULT, CREDIT] = [9e9, 9e9, 9e9]
    result = cost.report(rates, 1)
    figures = {figure.name: figure.median for figure in result.figures}
    assert figures["credit / tcp, 256 buffers"] == pytest.approx(credit)
    assert figures["credit / tcp, 64 buffers"] == pytest.approx(0.1)
    assert result.met is met
    assert result.settings["credit carries most with"] == "256 buffers"
    assert len(result.plots[0].series) == 2 * len(SIZES)
