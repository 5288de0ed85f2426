"""Experiments on the real runtime that show what the exchange claims to do: `headgate lab`."""
