"""Joins of two streams: their conditions, the rows that they keep, and the operators."""
