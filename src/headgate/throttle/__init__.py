"""Back-pressure mechanisms of other systems, as pure policies: no sockets, threads or clocks."""
