"""The function `hg.sources.nexmark`."""

from __future__ import annotations

from typing import Final, Literal

from headgate.connectors.arguments import FLAG, WHOLE, WHOLE_OR_NONE, check
from headgate.connectors.connector import Source
from headgate.connectors.generate_source import GenerateSource
from headgate.connectors.nexmark.nexmark_rows import KINDS
from headgate.connectors.nexmark.numbered_events import CYCLE, STRIDE, Timeline
from headgate.errors import ConfigError

#: The largest number of events: 300 years at 100,000 events per second. Numbers computed from it fit into 63 bits.
_MOST: Final = 10**15


class NexmarkSource(GenerateSource):
    """A source of the rows of one kind; see `hg.sources.nexmark`."""


def source(
    kind: Literal["persons", "auctions", "bids"],
    events: int | None = None,
    *,
    rate: int = 100_000,
    disorder: int = 1,
    paced: bool = False,
    seed: int = 0,
) -> Source:
    """Make rows of the Nexmark benchmark: persons, auctions, or bids of an auction site. See docs/how-to/nexmark.md.

    The rows are a part of one sequence of events: of 50 events, one is a new person, three are new auctions, and 46 are
    bids. The source makes the rows of one kind among the first `events` events; with None it has no end. Sources with
    the same `events`, `rate` and `seed` belong together: bids are for auctions of the source "auctions".

    Persons have the columns `id`, `name`, `email_address`, `credit_card`, `city` and `state`; auctions `id`,
    `item_name`, `description`, `initial_bid`, `reserve`, `expires`, `seller` and `category`; bids `auction`, `bidder`,
    `price`, `channel` and `url`. All have `date_time` and `extra`.

    Event n happens n / `rate` seconds after 2015-07-15T00:00Z, in whole milliseconds. So with the default rate, 50,000
    events are half a second of event time: for windows of seconds, choose a lower one. The column `date_time` has this
    time: `watermark=hg.Watermark("date_time", "4 s")`. `rate` also says how long auctions are open: the time of 1,666
    events on average. With `disorder` above 1, the rows of each group of `disorder` rows come out of order.

    By default rows come as fast as the job takes them; with `paced`, at `rate` events per second by the clock. Row i
    depends only on i and these arguments, so a job that restarts reads the same rows.

    The distributions are those of the generator of nexmark-flink, with two differences. Free texts are taken from pools
    of 4,096 texts, `extra` of bids from 65,536. Each `bidder` is the id of a person; in nexmark-flink, it is too high
    by 1,000.

    Raises ConfigError for impossible arguments.

    >>> env = hg.StreamEnvironment()
    >>> bids = env.from_source(hg.sources.nexmark("bids", events=1000), watermark=hg.Watermark("date_time", "4 s"))
    >>> bids.key_by().aggregate(final=True, bids=hg.count(), highest=hg.max("price")).collect().to_pylist()
    [{'bids': 920, 'highest': 99379214}]
    """
    if kind not in tuple(KINDS):
        raise ConfigError(f"nexmark: kind={kind!r} must be one of {', '.join(map(repr, KINDS))}")
    check(WHOLE_OR_NONE, events=events)
    check(WHOLE, rate=rate, disorder=disorder, seed=seed)
    check(FLAG, paced=paced)
    if events is not None and not 0 <= events <= _MOST:
        raise ConfigError(f"events={events} must be from 0 to {_MOST}; None means no end")
    if not 1 <= rate <= _MOST:
        raise ConfigError(f"rate={rate} must be from 1 to {_MOST} events per second")
    if disorder < 1 or disorder % STRIDE == 0:
        raise ConfigError(f"disorder={disorder} must be at least 1 row, and no multiple of {STRIDE}")
    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"seed={seed} must be from 0 to {(1 << 32) - 1}")
    rows_of = KINDS[kind]
    rows = None if events is None else rows_of.kind.rows(events)
    timeline = Timeline(kind=rows_of.kind, rows=rows, rate=int(rate), disorder=int(disorder), seed=int(seed))
    return NexmarkSource(
        rows_of(timeline),
        rows=rows,
        rate=rate * rows_of.kind.share / CYCLE if paced else None,
        schema=rows_of.schema,
        time=None,
        batch_rows=8192,
        batch_time="10 ms",
    )
