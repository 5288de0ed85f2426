"""`hg.throttle`: limits on how fast sources read, and on how much waits in input queues.

They are pure policies: no sockets, threads or clocks.
"""

from headgate.throttle.fixed_rate import FixedRate
from headgate.throttle.shed import Shed

__all__ = ["FixedRate", "Shed"]
