"""How TaskManagers are started on this machine: threads, or forks of a process that is ready."""
