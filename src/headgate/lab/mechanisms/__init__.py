"""The experiments that compare mechanisms: what each is expected to do, and what it does."""
