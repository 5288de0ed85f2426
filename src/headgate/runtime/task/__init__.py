"""A task: one subtask's chain of operators, its input and outputs, its barriers and state."""
