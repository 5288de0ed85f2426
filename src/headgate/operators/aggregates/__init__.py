"""Aggregates: the functions that users call, the accumulators that hold their state, and the running aggregate."""
