"""How TaskManagers start on this machine: as threads, or as forks of a server process."""
