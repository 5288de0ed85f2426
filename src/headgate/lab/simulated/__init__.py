"""The experiments that `headgate lab --simulate` runs in virtual time."""
