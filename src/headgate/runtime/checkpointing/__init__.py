"""Checkpoints on the driver: when they are taken, what they consist of, and what a job resumes from."""
