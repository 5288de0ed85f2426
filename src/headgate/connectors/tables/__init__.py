"""Sinks into tables of Delta Lake and Iceberg: subtasks write data files, and a commit adds them to the table."""
