"""Experiments that test on the real runtime, or in virtual time, how exchanges behave: `headgate lab`."""
