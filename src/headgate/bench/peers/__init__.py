"""Other engines that do the same job, each in a process and, where needed, an environment of its own."""
