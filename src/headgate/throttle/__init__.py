"""`hg.throttle`: limits on how fast sources read, and on how much waits in input queues.

They are pure policies: no sockets, threads or clocks. Each name is loaded when it is used, since few jobs have a
throttle.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.throttle.fixed_rate import FixedRate
    from headgate.throttle.heron_spout import HeronSpout
    from headgate.throttle.jstorm_master import JStormMaster
    from headgate.throttle.jstorm_stages import JStormStages
    from headgate.throttle.max_pending import MaxPending
    from headgate.throttle.shed import Shed
    from headgate.throttle.spark_pid import SparkPid
    from headgate.throttle.storm_status import StormStatus
    from headgate.throttle.storm_zookeeper import StormZooKeeper

_HOMES = {
    "FixedRate": "headgate.throttle.fixed_rate",
    "HeronSpout": "headgate.throttle.heron_spout",
    "JStormMaster": "headgate.throttle.jstorm_master",
    "JStormStages": "headgate.throttle.jstorm_stages",
    "MaxPending": "headgate.throttle.max_pending",
    "Shed": "headgate.throttle.shed",
    "SparkPid": "headgate.throttle.spark_pid",
    "StormStatus": "headgate.throttle.storm_status",
    "StormZooKeeper": "headgate.throttle.storm_zookeeper",
}

__all__ = [
    "FixedRate",
    "HeronSpout",
    "JStormMaster",
    "JStormStages",
    "MaxPending",
    "Shed",
    "SparkPid",
    "StormStatus",
    "StormZooKeeper",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
