"""Checkpoints on the driver: when they are taken, what they contain, and what a job resumes from."""
