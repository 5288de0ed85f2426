"""The process that runs tasks: its links, its threads, its uploads and counters."""
