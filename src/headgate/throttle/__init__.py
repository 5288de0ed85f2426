"""`hg.throttle`: limits on how fast sources read. They are pure policies: no sockets, threads or clocks."""

from headgate.throttle.fixed_rate import FixedRate

__all__ = ["FixedRate"]
