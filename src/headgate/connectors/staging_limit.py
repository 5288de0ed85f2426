"""How much a subtask stages for the next checkpoint while the driver commits the last one.

A sink that stages rows has this limit, since otherwise each checkpoint is larger than the one before if the job is
faster than the driver. A wait for the driver cannot hold back a checkpoint: none begins before the driver has committed
the last one.
"""

from __future__ import annotations

from typing import Final

#: How many bytes of rows a subtask stages at most while the driver commits.
MOST_STAGED: Final = 64 << 20
#: Seconds between two looks whether the driver still commits.
LOOK_INTERVAL: Final = 0.1
