"""What both ends of a channel count at an aligned barrier, and how far apart they are in between."""

from __future__ import annotations

from tests.exchange.link import SEGMENT, Link


def test_at_an_aligned_barrier_both_ends_have_counted_the_same() -> None:
    """`Link` compares the counts when a barrier arrives: bytes with those at its injection, buffers, and credit."""
    link = Link(channels=2, exclusive=2, floating=4, extra=8, cap=8, overdraft=0)
    link.settle()
    for number in range(1, 6):
        for index in (0, 1):
            link.write(index, (number + index) * SEGMENT + 3)
            link.write_barrier(index)
            link.write(index, 2 * SEGMENT + number)
        while link.aligned < 2 * number:
            link.settle()
            assert link.consume() or link.held or link.aligned == 2 * number, "stuck before the barrier"
            while link.held:
                link.recycle(0)
        link.settle()
        for channel in link.channels:
            subpartition = link.partition.subpartition(channel.index)
            assert subpartition.credit is not None
            assert subpartition.credit.granted == link.granted[channel.index], "all credit has arrived"
            assert subpartition.buffers_sent == link.spent[channel.index] == channel.buffers_in
        while link.consume():
            while link.held:
                link.recycle(0)
        link.resume()
        link.settle()
    link.run_to_the_end(10)
    link.close()


def test_between_barriers_the_receiver_is_behind_by_no_more_than_its_buffers() -> None:
    """The receiver is read first: what is sent meanwhile counts as on the way."""
    link = Link(channels=1, exclusive=2, floating=3, extra=20, cap=20, overdraft=0)
    link.settle()
    subpartition, channel = link.partition.subpartition(0), link.channels[0]
    most = 0
    link.write(0, 18 * SEGMENT)
    for _ in range(60):
        received = channel.buffers_in
        link.deliver_posts()
        link.produce(3)
        link.write_socket(SEGMENT)
        on_the_way = subpartition.buffers_sent - received
        assert 0 <= on_the_way <= 2 + 3
        most = max(most, on_the_way)
        link.receive(SEGMENT // 2)
        link.send_control()
        link.receive_control(1000)
        if link.consume():
            link.recycle(0)
        link.check()
    assert most > 1, "nothing was ever on the way"
    link.run_to_the_end(0)
    link.close()
