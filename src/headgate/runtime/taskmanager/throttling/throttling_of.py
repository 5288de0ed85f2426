"""Finds the part of the job's throttle that runs in one TaskManager."""

from __future__ import annotations

from headgate.runtime.task.throttling import Throttling
from headgate.runtime.taskmanager.throttling.throttle_place import ThrottlePlace


def throttling_of(place: ThrottlePlace) -> Throttling | None:
    """Return the part of the job's throttle that runs in this TaskManager, or None if it needs none."""
    if place.config.throttle is None:
        return None
    from headgate.runtime.taskmanager.throttling.connected_throttles import throttling  # few jobs have a throttle

    return throttling(place.config.throttle, place)
