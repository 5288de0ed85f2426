"""SQL strings: parsed, typed on the driver, and evaluated on batches."""
