"""The traces of a channel's two ends become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.observe.channel_trace import ChannelTrace, EndTrace, TraceEvent, joined


def trace(producer: EndTrace, consumer: EndTrace) -> ChannelTrace:
    return joined("numbers -> slow", 0, 1, 2.0, [producer, consumer])


def ends(skew: float, way: float = 0.001) -> tuple[EndTrace, EndTrace]:
    """Return two ends. The consumer's clock is `skew` seconds ahead, and a message takes `way` seconds."""
    producer = [TraceEvent("sent", 0.1, 2, 7, 3), TraceEvent("credited", 0.3 + way, 1, 12, 1)]
    consumer = [
        TraceEvent("received", 0.1 + way, 2, 7, 3),
        TraceEvent("read", 0.2, 2, 0, 0),
        TraceEvent("granted", 0.3, 1, 12, 0),
    ]
    return EndTrace(1000.0, producer, False), EndTrace(1000.0 + skew, consumer, False)


def test_events_of_both_ends_are_in_the_order_of_their_times() -> None:
    joined_ends = trace(*ends(0.0))
    assert [event.kind for event in joined_ends.events] == ["sent", "received", "read", "granted", "credited"]
    assert (joined_ends.at, joined_ends.is_complete) == (1000.0, True)
    assert [event.at for event in joined_ends.events] == [0.1, 0.101, 0.2, 0.3, 0.301]


def test_times_count_from_the_begin_of_the_end_that_began_first() -> None:
    producer, consumer = ends(0.0)
    early = EndTrace(999.9, [event._replace(at=event.at + 0.1) for event in consumer.events], False)
    joined_ends = trace(producer, early)
    assert joined_ends.at == 999.9
    assert [event.at for event in joined_ends.events] == pytest.approx([0.2, 0.201, 0.3, 0.4, 0.401])


@given(st.floats(-100, 100), st.floats(1e-4, 1e-2))
def test_no_message_arrives_before_it_was_sent(skew: float, way: float) -> None:
    """Whatever the clocks of the two machines show."""
    at = {(event.kind, event.number): event.at for event in trace(*ends(skew, way)).events}
    assert at["received", 7] >= at["sent", 7] - 1e-5
    assert at["credited", 12] >= at["granted", 12] - 1e-5


@pytest.mark.parametrize("skew", [-5.0, 5.0])
def test_clocks_that_contradict_each_other_are_moved_to_equal_ways(skew: float) -> None:
    at = {(event.kind, event.number): event.at for event in trace(*ends(skew)).events}
    assert at["received", 7] - at["sent", 7] == pytest.approx(0.001, abs=1e-5)
    assert at["credited", 12] - at["granted", 12] == pytest.approx(0.001, abs=1e-5)


def test_a_trace_ends_where_one_of_its_ends_was_full() -> None:
    producer, consumer = ends(0.0)
    full = EndTrace(1000.0, consumer.events[:2], True)
    cut = trace(producer, full)
    assert [event.kind for event in cut.events] == ["sent", "received", "read"]
    assert not cut.is_complete


def test_a_trace_without_events_is_one() -> None:
    assert trace(EndTrace(1000.0, [], False), EndTrace(1000.0, [], False)).events == ()


def test_a_trace_is_a_line_for_each_event() -> None:
    assert str(trace(*ends(0.0))).splitlines() == [
        " 0.100000 s  the producer sends 2 buffers, backlog 3",
        " 0.101000 s  the consumer receives 2 buffers, backlog 3",
        " 0.200000 s  the consumer reads 2 buffers, 0 left",
        " 0.300000 s  the consumer sends AddCredit 1",
        " 0.301000 s  the producer receives AddCredit 1, credit 1",
    ]
