"""Users' functions with state and timers for each key: the base class, its states, and the operator that runs it."""
