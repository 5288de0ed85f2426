"""Aggregates of a key: what a user asks for, their accumulators, and the running aggregate."""
