"""A job on the driver: its attempts, its end, and what it says of itself."""
