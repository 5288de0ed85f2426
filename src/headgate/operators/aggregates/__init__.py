"""Aggregates: the functions that users call, the accumulators that hold the state, and the running aggregate."""
