"""The original systems, run beside Headgate's mechanisms on the same load."""
