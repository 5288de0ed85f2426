"""Aggregates with `where=`: different conditions stay different."""

from __future__ import annotations

import pyarrow.compute as pc

import headgate as hg


def test_conditions_whose_short_texts_are_the_same() -> None:
    """Arrow's text of a long list leaves out its middle."""
    some, others = list(range(100)), [*range(50), 1000, *range(51, 100)]
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(hg.sources.iterable([{"n": 50}, {"n": 1000}, {"n": 1000}]))
    counts = {name: hg.count(where=pc.field("n").isin(values)) for name, values in [("a", some), ("b", others)]}
    assert rows.key_by().aggregate(final=True, **counts).collect().to_pylist() == [{"a": 1, "b": 2}]
