"""Sinks that write files: they write rows to hidden files, and a commit makes the files visible."""
