"""The build hook of a compiled wheel: if HEADGATE_COMPILE=1, mypyc compiles the modules that every batch passes.

Sources and results are the same; only Python's own steps take less time. All other modules are plain Python, and so is
every wheel that is built without that variable. Compiling needs a C compiler and Python's headers.
HEADGATE_COMPILE_LEVEL is how much the C compiler optimizes, from 0 to 3. Without it, that is 2.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface[BuilderConfig]):
    """The hook that adds compiled modules beside their sources. pyproject.toml lists them. Python prefers them to the
    sources."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the packages needed to compile: mypy reads the types of everything that the modules import."""
        if not self._is_wanted("standard"):
            return []
        return [*self.config["compiler"], *self.build_config.builder.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._is_wanted(version):
            return
        self._built = TemporaryDirectory()
        folder = Path(self._built.name)
        _compile([f"src/headgate/{name}.py" for name in self.config["modules"]], folder)
        for library in folder.rglob("*.so"):
            build_data["force_include"][str(library)] = str(library.relative_to(folder))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._is_wanted(version):
            self._built.cleanup()

    def _is_wanted(self, version: str) -> bool:
        """Return whether to compile. A development install is never compiled, because it runs the present sources."""
        return os.environ.get("HEADGATE_COMPILE") == "1" and self.target_name == "wheel" and version == "standard"


def _compile(sources: list[str], folder: Path) -> None:
    """Write a library for each module into `folder`, at its path in the package. Also write one library that all
    modules share."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    with TemporaryDirectory() as work:
        level = os.environ.get("HEADGATE_COMPILE_LEVEL", "2")
        paths = ["--config-file=mypyc.ini", *sources]
        extensions = mypycify(paths, opt_level=level, debug_level="0", target_dir=work, group_name="headgate")
        build = Distribution({"name": "headgate", "ext_modules": extensions}).get_command_obj("build_ext")
        build.build_lib, build.build_temp = str(folder), work
        build.ensure_finalized()
        build.run()
