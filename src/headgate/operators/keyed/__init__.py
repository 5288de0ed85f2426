"""Users' functions with state and timers for each key: their base class, the kinds of state, and the operator that runs
them."""
