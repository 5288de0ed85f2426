"""Other engines that run the same job. Each runs in its own process, and if necessary in its own Python environment."""
