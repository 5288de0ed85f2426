"""A job on the driver: its attempts, its end, its counters and its warnings."""
