"""Other engines that run the same job, each in its own process and, if necessary, its own Python environment."""
