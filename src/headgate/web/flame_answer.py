"""The answers about a profile: its flame graph, and which operator it is of."""

from __future__ import annotations

from typing import Final

import msgspec

from headgate.observe.profile import Profile
from headgate.observe.topology import Topology
from headgate.web.answers import FlameGraph, ProfileSummary

#: The most nodes of a flame graph in an answer.
MOST_NODES: Final = 500


def flame_graph(topology: Topology, profile: Profile) -> FlameGraph:
    """Return a profile with its flame graph, which has at most `MOST_NODES` nodes."""
    values = profile.as_json(MOST_NODES)
    values |= {"vertex": _vertex(topology, profile), "end_timestamp": values["ended_at"], "data": values["flame"]}
    return msgspec.convert(values, FlameGraph)


def profile_summary(topology: Topology, profile: Profile | None) -> ProfileSummary | None:
    """Return which operator a profile is of, and when it ended."""
    if profile is None:
        return None
    return ProfileSummary(
        vertex=_vertex(topology, profile),
        operator=profile.operator,
        subtask=profile.subtask,
        end_timestamp=round(profile.ended_at, 3),
    )


def _vertex(topology: Topology, profile: Profile) -> int:
    """Return the vertex of the profiled operator. Names of operators are unique in a job."""
    names = ((vertex.id, operator.name) for vertex in topology.vertices for operator in vertex.operators)
    return next(vertex for vertex, name in names if name == profile.operator)
