"""Sight: the history of a job's metrics, and what follows from it. Pure: no thread, no socket, no clock."""
