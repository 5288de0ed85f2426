"""Windows of event time: the functions that declare them, the operator that aggregates in them, and its state."""
