"""The rows of the Nexmark source: the official distributions, and the same rows in whatever parts they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.connectors.nexmark.nexmark_functions import NexmarkSource
from headgate.connectors.nexmark.numbered_events import AUCTIONS, BIDS, PERSONS

EVENTS = 500_000
PERSON = [1000, "Vicky White", "Los Angeles", "ID"]
BID_ROWS = [
    (1001, 1001, 1029727, "Facebook"),
    (1010, 1001, 575, "channel-2997"),
    (1000, 1001, 40394087, "channel-3426"),
]


def source(kind: Any, events: int | None = EVENTS, **options: Any) -> NexmarkSource:
    made = hg.sources.nexmark(kind, events, **options)
    assert isinstance(made, NexmarkSource)
    return made


def table(kind: Any, events: int = EVENTS, **options: Any) -> pa.RecordBatch:
    made = source(kind, events, **options)
    return made.make(0, made.rows or 0)


@pytest.fixture(scope="module")
def bids() -> pa.RecordBatch:
    return table("bids")


@pytest.fixture(scope="module")
def auctions() -> pa.RecordBatch:
    return table("auctions")


@pytest.mark.parametrize("kind", ["persons", "auctions", "bids"])
@pytest.mark.parametrize("options", [{}, {"disorder": 70}, {"rate": 7, "seed": 9}], ids=repr)
def test_rows_are_the_same_in_whatever_parts_they_are_made(kind: str, options: dict[str, int]) -> None:
    made = source(kind, 20_000, **options)
    whole, parts = table(kind, 20_000, **options), [made.make(start, 50) for start in (0, 50, 333)]
    assert [part.to_pylist() for part in parts] == [whole.slice(start, 50).to_pylist() for start in (0, 50, 333)]
    assert made.make(5, 0).num_rows == 0


def test_a_seed_has_the_same_rows_for_ever() -> None:
    """Checkpoints of jobs hold positions in these rows."""
    [person] = table("persons", 1).to_pylist()
    assert [person[name] for name in ("id", "name", "city", "state")] == PERSON
    numbers = ("auction", "bidder", "price", "channel")
    assert [tuple(row[name] for name in numbers) for row in table("bids", 7).to_pylist()] == BID_ROWS


def test_of_50_events_one_is_a_person_and_three_are_auctions(bids: pa.RecordBatch, auctions: pa.RecordBatch) -> None:
    assert (table("persons").num_rows, auctions.num_rows, bids.num_rows) == (10_000, 30_000, 460_000)
    for events in (0, 1, 2, 4, 5, 49, 50, 51):
        assert sum(kind.rows(events) for kind in (PERSONS, AUCTIONS, BIDS)) == events
    assert auctions["id"].to_pylist() == list(range(1000, 31_000))
    assert table("persons")["id"].to_pylist() == list(range(1000, 11_000))


def test_times_follow_the_rate(bids: pa.RecordBatch) -> None:
    begin = 1_436_918_400_000_000
    for rows, first, share in ((bids, 4, 46), (table("persons"), 0, 1)):
        number = np.arange(rows.num_rows)
        events = number // share * 50 + first + number % share
        assert (rows["date_time"].cast(pa.int64()).to_numpy() == begin + events * 1000 // 100_000 * 1000).all()


def test_half_of_the_bids_are_for_the_hot_auction(bids: pa.RecordBatch) -> None:
    last = np.arange(bids.num_rows) // 46 * 3 + 2
    auction = bids["auction"].to_numpy() - 1000
    is_hot = auction == last // 100 * 100
    assert is_hot.mean() == pytest.approx(0.5 + 0.5 / 111, abs=0.01)
    away = last - auction
    assert (away[~is_hot].min(), away[~is_hot].max()) == (-10, 100)


def test_bidders_and_sellers_are_persons(bids: pa.RecordBatch, auctions: pa.RecordBatch) -> None:
    """Some of them come a little later than their first bid."""
    for column, share, offset in ((bids["bidder"], 46, 1), (auctions["seller"], 3, 0)):
        last = np.arange(len(column)) // share
        person = column.to_numpy() - 1000
        is_hot = person == last // 100 * 100 + offset
        assert is_hot.mean() == pytest.approx(0.75, abs=0.01)
        away = (last - person)[~is_hot & (last > 1000)]
        assert (away.min(), away.max()) == (-10, 999)


def test_prices_are_uniform_in_their_logarithm(bids: pa.RecordBatch) -> None:
    logarithms = np.log10(bids["price"].to_numpy() / 100) / 6
    assert 0 <= logarithms.min() < 0.001
    assert 0.999 < logarithms.max() <= 1
    assert np.histogram(logarithms, 10)[0] / len(logarithms) == pytest.approx([0.1] * 10, abs=0.003)


def test_channels_and_urls(bids: pa.RecordBatch) -> None:
    channel, url = bids["channel"], bids["url"]
    is_hot = pc.is_in(channel, pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert pc.mean(pc.cast(is_hot, pa.float64())).as_py() == pytest.approx(0.5, abs=0.01)
    assert pc.count_distinct(channel).as_py() == 10_004
    cold = url.filter(pc.invert(is_hot))
    has_id = pc.match_substring_regex(cold, r"&channel_id=\d+$")
    assert pc.mean(pc.cast(has_id, pa.float64())).as_py() == pytest.approx(0.9, abs=0.02)
    path = r"^https://www\.nexmark\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item\.htm\?query=1(&channel_id=\d+)?$"
    assert pc.all(pc.match_substring_regex(url, path)).as_py()
    url_of = dict(zip(channel.to_pylist(), url.to_pylist(), strict=True))
    assert url_of["channel-1"].endswith(("query=1", "&channel_id=2147483648"))
    assert [url_of[name] for name in channel.to_pylist()[:1000]] == url.to_pylist()[:1000]


def test_an_auction_lasts_as_long_as_1666_events_on_average(auctions: pa.RecordBatch) -> None:
    lasts = pc.subtract(auctions["expires"].cast(pa.int64()), auctions["date_time"].cast(pa.int64())).to_numpy() / 1000
    assert (lasts.min(), lasts.max()) == (1, 34)
    assert lasts.mean() == pytest.approx(17.2, abs=0.3)
    assert pc.all(pc.greater(auctions["reserve"], auctions["initial_bid"])).as_py()
    assert pc.min_max(auctions["category"]).as_py() == {"min": 10, "max": 14}


def test_rows_are_as_long_as_the_official_ones(bids: pa.RecordBatch, auctions: pa.RecordBatch) -> None:
    """100 bytes for a bid without channel and URL, 500 for an auction, 200 for a person."""
    rows = {"bid": bids.select(["auction", "bidder", "price", "date_time", "extra"]), "auction": auctions}
    rows["person"] = table("persons")
    lengths = {kind: sum(_bytes(column) for column in batch.columns) / batch.num_rows for kind, batch in rows.items()}
    assert lengths == pytest.approx({"bid": 100, "auction": 500, "person": 200}, rel=0.04)


def _bytes(column: pa.Array) -> int:
    if pa.types.is_string(column.type):
        return int(pc.sum(pc.binary_length(column)).as_py())
    return 8 * len(column)


def test_disorder_permutes_the_rows_of_each_full_group(bids: pa.RecordBatch) -> None:
    shuffled, rows = table("bids", disorder=100, events=2_000), bids.slice(0, 1840)
    assert shuffled.to_pylist() != rows.to_pylist()
    for start in range(0, 1800, 100):
        group, moved = rows.slice(start, 100), shuffled.slice(start, 100)
        assert sorted(map(str, moved.to_pylist())) == sorted(map(str, group.to_pylist()))
    assert shuffled.slice(1800).to_pylist() == rows.slice(1800).to_pylist()


def test_subtasks_make_every_row_once() -> None:
    env = hg.StreamEnvironment(parallelism=3)
    auctions = env.from_source(hg.sources.nexmark("auctions", 1_000_000), watermark=hg.Watermark("date_time"))
    counts = auctions.key_by().window(hg.tumble("1 s")).aggregate(rows=hg.count(), ids=hg.count_distinct("id"))
    found = counts.collect()
    assert found["rows"].to_pylist() == found["ids"].to_pylist() == [6000] * 10


def test_a_paced_source_gives_rows_at_their_rate_by_the_clock() -> None:
    assert source("bids", rate=1000, paced=True).rate == 920
    assert source("persons", rate=1000).rate is None
    assert not source("bids", None).bounded


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "bid"}, "kind='bid' must be one of 'persons', 'auctions', 'bids'"),
        ({"kind": []}, "kind=[] must be one of 'persons', 'auctions', 'bids'"),
        ({"events": -1}, "events=-1 must be from 0 to 1000000000000000"),
        ({"events": 1.5}, "events=1.5 must be a whole number, or None"),
        ({"rate": 0}, "rate=0 must be from 1 to 1000000000000000 events per second"),
        ({"disorder": 0}, "disorder=0 must be at least 1 row, and no multiple of 953"),
        ({"disorder": 1906}, "disorder=1906 must be at least 1 row"),
        ({"seed": -1}, "seed=-1 must be from 0 to 4294967295"),
        ({"paced": 1}, "paced=1 must be True or False"),
    ],
    ids=repr,
)
def test_impossible_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(hg.ConfigError) as caught:
        hg.sources.nexmark(**{"kind": "bids", **arguments})
    assert words in str(caught.value)
