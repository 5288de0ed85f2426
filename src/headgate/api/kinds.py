"""The error of an operator or a sink that cannot take an upserting stream.

In an append-only stream all rows count. In an upserting stream a row replaces the last row with the same key: a running
aggregate emits a row each time that a result changes. An operator that counts such rows would count results that have
been replaced. Filters, functions and lookups keep the kind of a stream.
"""

from __future__ import annotations

from headgate.errors import PlanError
from headgate.plan.graph import Node, Partitioning, Upserts


def refused(call: str, upserts: Upserts, origin: Node) -> PlanError:
    """Return the error of the user's call, for rows that replace one another since the node `origin`.

    The error names this operator and the way out.
    """
    return PlanError(
        f"{call}: the rows of {origin.name!r} replace one another: it emits a new row for a key ({_key(upserts.key)}) "
        f"each time that the result changes, and {call} would take each of them for a row of its own; "
        f"{_remedy(origin)}, or write .changes() after it if each change is to count"
    )


def wrong_key(call: str, key: tuple[str, ...], upserts: Upserts, origin: Node) -> PlanError:
    """Return the error of a sink that replaces rows by another key than the stream does."""
    remedy = f"give the sink key={list(upserts.key)!r}" if upserts.key else _remedy(origin)
    return PlanError(
        f"{call}: key= is {_key(key)}, but the rows of {origin.name!r} replace one another by {_key(upserts.key)}: the "
        f"sink would keep rows that were replaced, or replace rows that were not; {remedy}, or write .changes() "
        "if each change is to count"
    )


def no_key(call: str, origin: Node) -> PlanError:
    """Return the error of a sink that replaces rows by key, for sessions that grow: their bounds change."""
    return PlanError(
        f"{call}: a row of {origin.name!r} replaces sessions with other bounds when a session grows, and no column "
        f"says which; {_remedy(origin)}"
    )


def overtaken(sink: Node, upserts: Upserts, source: Node, target: Node, partitioning: Partitioning) -> PlanError:
    """Return the error of a sink that replaces rows by key, behind an exchange that does not keep their order."""
    return PlanError(
        f"sink_to({sink.name}): it keeps the last row of each key ({_key(upserts.key)}), but the exchange "
        f"({partitioning.kind}) from {source.name!r} to {target.name!r} lets the rows of one key overtake one another; "
        f"give both the same parallelism, or write key_by() with these columns before {target.name!r}"
    )


def dropped(sink: Node, upserts: Upserts, origin: Node, condition: Node) -> PlanError:
    """Return the error of a sink that replaces rows by key, behind a filter or an inner lookup by values that
    change."""
    remedy = f"filter by columns of the key only ({_key(upserts.key)}), or where the sink's rows are read"
    if condition.attributes["kind"] == "lookup":
        remedy = f"write how='left', or look up by columns of the key only ({_key(upserts.key)})"
    return PlanError(
        f"sink_to({sink.name}): when a result of {origin.name!r} changes so that {condition.name!r} drops it, the sink "
        f"keeps the last one that passed; {remedy}"
    )


def computed(call: str, column: str, node: Node, upserts: Upserts, origin: Node) -> PlanError:
    """Return the error of a sink that replaces rows by a column that a projection computes anew."""
    return PlanError(
        f"{call}: the rows of {origin.name!r} replace one another by {_key(upserts.key)}, but {node.name!r} computes "
        f"{column!r}: rows of two keys may then get the same value and replace one another; compute it before "
        f"{origin.name!r}, or in a column that is not part of the sink's key; or write .changes() before if different "
        "keys stay different"
    )


def divided(sink: Node, upserts: Upserts, origin: Node) -> PlanError:
    """Return the error of a sink by key behind a union whose parts differ by more than filters."""
    return PlanError(
        f"sink_to({sink.name}): the rows of {origin.name!r} replace one another by {_key(upserts.key)}, and a union "
        "joins parts of them that went different ways: an older row may then come after the one that replaces it. Join "
        "only parts that filter() makes of one stream, or write .changes() before the parts if the order does not count"
    )


def united(one: Upserts, origin: Node, other: Upserts | None, other_origin: Node | None) -> PlanError:
    """Return the error of a union of an upserting stream with one that is append-only, or that another operator
    makes."""
    rows, remedy = f"union: the rows of {origin.name!r} replace one another by {_key(one.key)}", _remedy(origin)
    if other is None or other_origin is None:
        return PlanError(
            f"{rows}, and another stream is append-only: no row says which of its rows is replaced; {remedy}, or write "
            ".changes() after it if each change is to count"
        )
    return PlanError(
        f"{rows}, and those of {other_origin.name!r} by {_key(other.key)}, apart from them: if both have a row with "
        f"the same key, no row says which one is valid; {remedy}, or call union() before these operators, or write "
        ".changes() after both if each change is to count"
    )


def _key(columns: tuple[str, ...]) -> str:
    return ", ".join(columns) or "the global key"


def _remedy(origin: Node) -> str:
    if origin.attributes["kind"] == "window":
        return "leave out its allowed_lateness, and take late rows from late_output(tag)"
    return "use final=True there, or windows, whose results are final"
