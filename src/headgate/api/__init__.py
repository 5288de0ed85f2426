"""What the user writes: it builds a plan and hands it to the runtime."""
