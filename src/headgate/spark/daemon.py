"""The process from which Spark forks an executor's Python workers, in sessions that we build.

It has loaded what TaskManagers and PySpark's worker need, so that a worker that is started again need not: that would
take it a second or two.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyspark.sql.pandas.serializers  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

from headgate.runtime.taskmanager import taskmanager_process  # noqa: F401

if __name__ == "__main__":
    pa.array(np.zeros(1))  # loads pandas
    os.register_at_fork(after_in_child=np.random.seed)  # or all workers would draw the same
    manager()
