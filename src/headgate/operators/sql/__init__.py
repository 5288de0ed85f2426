"""SQL strings: the driver parses and types them, and operators evaluate them on batches."""
