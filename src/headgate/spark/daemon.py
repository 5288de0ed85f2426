"""The main module of the process from which Spark forks an executor's Python workers, in sessions that Headgate builds.

The process has already imported the modules that TaskManagers and PySpark's worker need. A worker that imports these
modules itself starts one or two seconds later.
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
    os.register_at_fork(after_in_child=np.random.seed)  # otherwise all workers would draw the same random numbers
    manager()
