"""Windows of event time: which there are, the operator, and its state by pane."""
