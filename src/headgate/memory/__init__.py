"""Network memory: segments, the pools that lend them, and counted buffers. No threads, no I/O: locks are arguments."""
