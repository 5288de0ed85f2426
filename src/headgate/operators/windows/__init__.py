"""Windows: the functions that declare them, the operators that aggregate in them, and the state of these operators."""
