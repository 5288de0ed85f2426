"""Experiments that test on the real runtime what the documents say about the exchange: `headgate lab`."""
