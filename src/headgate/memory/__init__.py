"""Network memory: segments, the pools that lend them, and counted buffers.

Nothing here starts a thread or does I/O; the caller passes the locks in.
"""
