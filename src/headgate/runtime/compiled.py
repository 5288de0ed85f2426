"""Returns the versions in use, and whether the modules of the data path are compiled (see hatch_build.py)."""

import platform
from importlib.metadata import version
from typing import Final

from headgate.exchange import writer

IS_COMPILED: Final = not (writer.__file__ or "").endswith(".py")


def versions() -> dict[str, str]:
    """Return the versions of Headgate, of the packages that it needs, and of Python."""
    packages = {package: version(package) for package in ("headgate", "pyspark", "pyarrow", "numpy")}
    return {**packages, "python": platform.python_version(), "package": "compiled" if IS_COMPILED else "pure"}
