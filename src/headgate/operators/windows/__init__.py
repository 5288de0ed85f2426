"""Windows of event time: the functions that declare windows, the operator that aggregates in windows, and its state."""
