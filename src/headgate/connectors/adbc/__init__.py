"""Databases, through ADBC: the driver's and the subtasks' parts of the sink, and the source."""
