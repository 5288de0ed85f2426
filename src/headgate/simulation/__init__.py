"""Simulated jobs: the runtime's own tasks, pools and protocol, with a virtual clock and a virtual network."""
