"""Functions of the user's with state for each key and timers."""
