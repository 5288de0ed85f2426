"""Sinks that write files: rows to hidden files, which a commit shows."""
