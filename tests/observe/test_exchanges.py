"""Why an exchange is slow: each cause by its evidence, on snapshots that are made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headgate.observe.channel_columns import columns_of
from headgate.observe.channel_window import ChannelWindow
from headgate.observe.diagnosis import diagnose, windows_of
from headgate.observe.edge_window import edge_windows
from headgate.observe.finding import Finding
from headgate.observe.reported_channels import ReportedChannels
from tests.observe.made_metrics import branches, line, snapshots

TOPOLOGY = line("numbers", "out")
EDGE = "numbers -> out"
WAITS = {"soft_backpressured_s": 0.75, "busy_s": 0.25, "cpu_s": 0.25, "rows": 100}
IDLES = {"idle_s": 0.9, "busy_s": 0.1, "cpu_s": 0.1, "rows": 100}
TASKS = {(vertex, subtask): does for vertex, does in ((0, WAITS), (1, IDLES)) for subtask in (0, 1)}

#: A channel whose credit takes 50 ms to come back: 10 buffers are on the way, and 200 arrive in a second.
FAR = {
    "credit_wait_s": 0.9, "without_buffer_s": 0.0, "buffers_sent": 200, "bytes_sent": 1e6, "credit": 0, "backlog": 9,
    "queue": 0, "free_exclusive": 2, "free_floating": 8,
}  # fmt: skip
#: One whose consumer has no buffer free, although it waits for input.
BARE = {**FAR, "without_buffer_s": 0.8, "free_exclusive": 0, "free_floating": 0}
#: A connection that has room, one that a slow reader limits, and one that the line limits.
ROOM = {"busy_s": 0.95, "rwnd_limited_s": 0.0, "sndbuf_limited_s": 0.0, "rtt_s": 0.05, "min_rtt_s": 0.045,
        "delivery_rate": 9_000_000, "app_limited": True, "bytes_sent": 4e6}  # fmt: skip
NOT_READ = {**ROOM, "rwnd_limited_s": 0.6}
FULL = {**ROOM, "app_limited": False}
QUEUES = {**ROOM, "rtt_s": 0.3}


def found(channel: Mapping[str, Any] | None, link: Mapping[str, Any] | None = None, **options: Any) -> Finding:
    channels = (
        {} if channel is None else {(EDGE, producer, consumer): channel for producer in (0, 1) for consumer in (0, 1)}
    )
    (finding,) = diagnose(TOPOLOGY, snapshots(TOPOLOGY, TASKS, channels=channels, link=link, **options))
    assert finding.place == f"the exchange '{EDGE}'"
    return finding


@pytest.mark.parametrize(
    ("channel", "link", "cause"),
    [
        (FAR, None, "credit_round_trip"),
        (FAR, ROOM, "credit_round_trip"),
        (BARE, ROOM, "no_buffers"),
        (BARE, NOT_READ, "no_buffers"),
        (FAR, NOT_READ, "receiver_window"),
        (None, NOT_READ, "receiver_window"),
        (FAR, FULL, "network"),
        (FAR, QUEUES, "network"),
        ({**FAR, "credit_wait_s": 0.1}, ROOM, "exchange"),
        (None, None, "exchange"),
        (FAR, {**FULL, "busy_s": 0.5}, "credit_round_trip"),
        (FAR, {**FULL, "sndbuf_limited_s": 0.5}, "credit_round_trip"),
    ],
)
def test_each_cause_by_its_evidence(
    channel: Mapping[str, Any] | None, link: Mapping[str, Any] | None, cause: str
) -> None:
    assert found(channel, link).cause.name == cause


@pytest.mark.parametrize(
    ("unknown", "channel", "link", "cause"),
    [
        ("credit_wait_s", FAR, ROOM, "exchange"),
        ("without_buffer_s", BARE, ROOM, "credit_round_trip"),
        ("rwnd_limited_s", FAR, NOT_READ, "credit_round_trip"),
        ("busy_s", FAR, FULL, "credit_round_trip"),
        ("sndbuf_limited_s", FAR, FULL, "credit_round_trip"),
        ("app_limited", FAR, FULL, "credit_round_trip"),
        ("min_rtt_s", FAR, QUEUES, "credit_round_trip"),
        ("free_floating", FAR, ROOM, "credit_round_trip"),
    ],
)
def test_what_is_unknown_is_no_evidence(
    unknown: str, channel: Mapping[str, Any], link: Mapping[str, Any], cause: str
) -> None:
    for without in ({unknown: None}, {}):
        known = [{name: value for name, value in row.items() if name != unknown} for row in (channel, link)]
        assert found({**known[0], **without}, {**known[1], **without}).cause.name == cause


def test_the_sentence_says_how_long_credit_takes_and_how_many_buffers_help() -> None:
    finding = found(FAR, ROOM)
    assert finding.sentence == (
        "'numbers' waits for the exchange 'numbers -> out': no consumer is busy, and its producers wait for credit 90% "
        "of the time, which takes 50 ms to come back; 4 times as many buffers (buffers_per_channel, "
        "floating_buffers_per_gate), or larger ones (segment_size), would carry 4.0 times as many rows"
    )
    assert finding.remedy.gain == pytest.approx(4.0)
    assert finding.cause.evidence["round_trip_s"] == pytest.approx(0.05)
    assert finding.cause.evidence["rtt_s"] == 0.05


@pytest.mark.parametrize(("usage", "option"), [(0.5, "floating_buffers_per_gate"), (1.4, "network_memory")])
def test_receivers_without_buffers_need_the_option_that_is_short(usage: float, option: str) -> None:
    remedy = found(BARE, ROOM, memory_usage=usage).remedy
    assert f"raise {option}," in remedy.text
    assert remedy.gain == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("channel", "link", "text", "at_least"),
    [
        (BARE, ROOM, "raise floating_buffers_per_gate, which would carry at least 4.0 times as many rows", True),
        (FAR, NOT_READ, "without this limit the job would carry at least 4.0 times as many rows", True),
        (FAR, ROOM, "or larger ones (segment_size), would carry 4.0 times as many rows", False),
    ],
)
def test_a_gain_may_be_larger_than_the_largest_that_is_reported(
    channel: Mapping[str, Any], link: Mapping[str, Any], text: str, at_least: bool
) -> None:
    """But four times as many buffers do not gain more than that."""
    channels = {(EDGE, producer, consumer): channel for producer in (0, 1) for consumer in (0, 1)}
    tasks = {**TASKS, **{(0, subtask): {**WAITS, "soft_backpressured_s": 0.9, "busy_s": 0.1} for subtask in (0, 1)}}
    (finding,) = diagnose(TOPOLOGY, snapshots(TOPOLOGY, tasks, channels=channels, link=link))
    assert finding.sentence.endswith(text)
    assert (finding.remedy.gain, finding.remedy.at_least) == (4.0, at_least)


@pytest.mark.parametrize(("busy", "is_slow"), [(0.25, True), (0.6, False)])
def test_late_barriers_hide_a_slow_exchange_only_if_a_busy_task_holds_them_back(busy: float, is_slow: bool) -> None:
    aligns = {**IDLES, "idle_s": 0.3, "checkpoint_wait_s": 0.6}
    tasks = {**TASKS, (0, 1): {**WAITS, "soft_backpressured_s": 1 - busy, "busy_s": busy}, (1, 0): aligns}
    channels = {(EDGE, producer, consumer): FAR for producer in (0, 1) for consumer in (0, 1)}
    found = diagnose(TOPOLOGY, snapshots(TOPOLOGY, tasks, channels=channels))
    assert [each.cause.name for each in found] == ["credit_round_trip"] * is_slow


def test_more_buffers_do_not_help_a_full_line() -> None:
    finding = found(FAR, FULL)
    assert "4 MB/s from TaskManager 0 to TaskManager 0" in finding.cause.text
    assert finding.remedy.gain is None
    assert "more buffers gain nothing" in finding.remedy.text


def test_a_long_round_trip_is_told_in_seconds() -> None:
    assert "which takes 2.6 s to come back" in found({**FAR, "buffers_sent": 10 / 2.6}, ROOM).cause.text


def test_one_channel_without_credit_stops_its_producer() -> None:
    """The other channels of both producers have credit."""
    channels = {
        (EDGE, producer, consumer): FAR if producer == consumer else {**FAR, "credit_wait_s": 0.0}
        for producer in (0, 1)
        for consumer in (0, 1)
    }
    (finding,) = diagnose(TOPOLOGY, snapshots(TOPOLOGY, TASKS, channels=channels))
    assert finding.cause.evidence["credit_wait"] == pytest.approx(0.9)


def report(clock: float, *channels: Mapping[str, Any]) -> dict[str, Any]:
    return {"clock_s": clock, "channels": columns_of(channels)}


def test_a_channel_is_put_together_from_the_rows_of_both_its_ends() -> None:
    """Each end is reported by its own TaskManager, with a clock of its own."""
    place = {"edge": EDGE, "producer": 1, "consumer": 0}
    sent = {**place, "credit": 0, "backlog": 9, "queue": None}
    received = {**place, "credit": None, "backlog": None, "queue": 2, "free_exclusive": 0, "free_floating": 1}
    one = [{"clock_s": at, "channels": columns_of([{**sent, "credit_wait_s": 0.75 * at}])} for at in (0.0, 4.0)]
    other = [
        {"clock_s": at, "channels": columns_of([{**received, "without_buffer_s": 0.25 * at}])} for at in (7.0, 9.0)
    ]
    (channel,) = ReportedChannels([(one[0], one[1]), (other[0], other[1])]).of(EDGE)
    assert channel == ChannelWindow(
        edge=EDGE, producer=1, consumer=0, credit_wait=0.75, without_buffer=0.25, credit=0, backlog=9, queue=2,
        credit_wait_s=3.0, without_buffer_s=2.25,
        free_exclusive=0, free_floating=1,
    )  # fmt: skip


def test_a_channel_that_was_not_reported_before_has_no_shares() -> None:
    row = {"edge": EDGE, "producer": 0, "consumer": 0, **FAR}
    (channel,) = ReportedChannels([(report(0.0), report(3.0, row))]).of(EDGE)
    assert (channel.credit_wait, channel.buffers_per_second, channel.credit) == (None, None, 0)


def test_reports_without_channels_have_none() -> None:
    """A recording of an earlier version."""
    made = snapshots(TOPOLOGY, TASKS)
    for snapshot in made:
        for name in ("channels", "links", "network_memory"):
            del snapshot.reports[0][name]  # type: ignore[attr-defined]
    window = windows_of(TOPOLOGY, made)[-1]
    assert (len(window.channels), window.links) == (0, ())
    (finding,) = diagnose(TOPOLOGY, made)
    assert finding.cause.name == "exchange"


@pytest.mark.parametrize(("waits", "is_slow"), [(0.12, False), (0.19, False), (0.21, True), (0.5, True)])
def test_producers_that_wait_little_blame_no_exchange(waits: float, is_slow: bool) -> None:
    """A link that is far, with just enough buffers: producers wait now and then, and the job keeps up."""
    tasks = {
        place: {**does, "soft_backpressured_s": waits, "idle_s": 0.75 - waits} if place[0] == 0 else does
        for place, does in TASKS.items()
    }
    findings = diagnose(TOPOLOGY, snapshots(TOPOLOGY, tasks))
    assert [each.place for each in findings] == [f"the exchange '{EDGE}'"] * is_slow


@pytest.mark.parametrize(
    ("usages", "slow"),
    [
        ((0.17, 0.83), ["far"]),
        ((0.83, 0.17), ["near"]),
        ((0.5, 0.83), ["far", "near"]),
        ((0.83, 0.83), ["near", "far"]),
        ((0.0, 0.0), ["near", "far"]),
        (None, ["near", "far"]),
    ],
)
def test_of_several_exchanges_of_a_producer_those_with_much_emptier_buffers_are_not_slow(
    usages: tuple[float, float] | None, slow: list[str]
) -> None:
    """The fullest one comes first."""
    topology = branches(("numbers", "near", "far"), (0, 1), (0, 2))
    edges = {} if usages is None else {
        f"numbers -> {name}": {"rows_out": 100, "bytes_out": 1e8, "buffers_out": 100, "out_pool_usage": usage}
        for name, usage in zip(("near", "far"), usages, strict=True)
    }  # fmt: skip
    found = diagnose(topology, snapshots(topology, {(0, 0): WAITS, (1, 0): IDLES, (2, 0): IDLES}, edges=edges))
    assert [each.place for each in found] == [f"the exchange 'numbers -> {name}'" for name in slow]


def test_the_buffers_of_the_fullest_producer_count() -> None:
    reports = [
        {"edges": [{"name": EDGE, "producer": producer, "out_pool_usage": usage, "rows_out": 0, "bytes_out": 0}
                   for producer, usage in enumerate(usages)]}
        for usages in ((0.2, 0.6), (0.4, 1.0))
    ]  # fmt: skip
    assert edge_windows([(reports[0], reports[1])])[EDGE].usage == pytest.approx(0.8)


@pytest.mark.parametrize(("sent", "inflow"), [(None, 200), ({"rows_out": 20}, 20), ({"rows_out": 200}, 200)])
def test_rows_that_an_exchange_leaves_out_do_not_queue(sent: Mapping[str, int] | None, inflow: int) -> None:
    """Two producers emit 200 rows a second. Without a count of the exchange, it may have sent all of them."""
    topology = line("numbers", "out")
    does = {(vertex, subtask): {"busy_s": 0.1, "idle_s": 0.9, "rows": 100} for vertex in (0, 1) for subtask in (0, 1)}
    edges = {} if sent is None else {"numbers -> out": {**sent, "bytes_out": 0, "buffers_out": 1}}
    window = windows_of(topology, snapshots(topology, does, edges=edges))[-1]
    assert window.inflow(1) == round(inflow * window.seconds)
