"""`hg.throttle`: limits on how fast sources read, and on how much waits in input queues.

They are pure policies: no sockets, threads or clocks. Each name is loaded when it is used, since few jobs have a
throttle.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.throttle.fixed_rate import FixedRate
    from headgate.throttle.shed import Shed

_HOMES = {"FixedRate": "headgate.throttle.fixed_rate", "Shed": "headgate.throttle.shed"}

__all__ = ["FixedRate", "Shed"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
