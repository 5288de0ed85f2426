"""Modules of the user's program that are not installed: the driver sends their source with the plan.

A function of a module beside the script is pickled by its name. The process that unpickles the function imports the
module, but a Spark executor does not have the module's file. The driver therefore sends the source of each module that
it has loaded from the program's folder. The executor imports the module from this source. Installed modules are not
sent: they must be installed on the executor too.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

_OURS = __name__.partition(".")[0]
_PLACES_OF_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True)
class UserModule:
    """A module's name, file and source. `locations` are the folders of a package, or None for a plain module.

    `path` is None for a package without `__init__`.
    """

    name: str
    path: str | None
    source: str
    locations: tuple[str, ...] | None


def collect(modules: dict[str, ModuleType], root: Path) -> tuple[UserModule, ...]:
    """Return the loaded modules whose source is in the folder `root`, without modules that are installed there.

    Another thread may load a module meanwhile. `modules.copy()` is one step for the interpreter. A list of
    `modules.items()` is not: it makes tuples, so the garbage collector may run in it, and other threads after the
    collector's callbacks.
    """
    user = []
    for name, module in modules.copy().items():
        if name.partition(".")[0] in (_OURS, "__main__", "__mp_main__") or getattr(module, "__spec__", None) is None:
            continue
        locations = None if getattr(module, "__path__", None) is None else tuple(module.__path__)
        path = getattr(module, "__file__", None)
        if path is None:
            if locations and any(_is_folder_in_program(os.path.abspath(folder), str(root)) for folder in locations):
                user.append(UserModule(name, None, "", locations))
        elif path.endswith(".py") and _is_file_in_program(Path(path), root):
            try:
                user.append(UserModule(name, path, Path(path).read_text(encoding="utf-8"), locations))
            except (OSError, UnicodeDecodeError):
                continue  # the file was removed, or has another encoding: treat the module as installed
    return tuple(user)


def of_this_program() -> tuple[UserModule, ...]:
    """Return the loaded modules from the program's folder."""
    return collect(sys.modules, program_folder(sys.modules.get("__main__")))


def program_folder(main: ModuleType | None) -> Path:
    """Return the folder that a program imports its own modules from.

    For a script this is the script's folder. For `python -m` it is the folder that holds the module or its outermost
    package. In a notebook, a shell or an installed tool (pytest) it is the working folder.
    """
    path = getattr(main, "__file__", None)
    if path is None or _is_installed(file := Path(path).resolve()):
        return Path.cwd()
    spec = getattr(main, "__spec__", None)
    return file.parents[0 if spec is None else spec.name.count(".")]


def _is_file_in_program(file: Path, root: Path) -> bool:
    """Return whether a module's file is in the program's folder, and is not installed there."""
    folder = file.resolve().parent if file.is_symlink() else file.parent
    return _is_folder_in_program(os.path.abspath(folder), str(root))


@lru_cache(maxsize=4096)
def _is_folder_in_program(folder: str, root: str) -> bool:
    """Return whether a folder is in the program's folder, but not in a folder that installers write to.

    The answer is kept: each job asks for all loaded modules, which are in hundreds of folders.
    """
    resolved = Path(folder).resolve()
    return resolved.is_relative_to(Path(root).resolve()) and not _is_installed(resolved)


def _is_installed(path: Path) -> bool:
    """Return whether a path is in a folder that installers write to, or is part of Python."""
    if not _PLACES_OF_INSTALLED.isdisjoint(path.parts):
        return True
    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "scripts"))
    return any(path.is_relative_to(os.path.realpath(place)) for place in places)


class _Finder(MetaPathFinder):
    """The import hook that finds modules sent by the driver. They replace other modules of the same name."""

    def __init__(self, modules: Iterable[UserModule]) -> None:
        self._modules = {module.name: module for module in modules}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self._modules.get(fullname)
        if module is None:
            return None
        is_package = module.locations is not None
        spec = ModuleSpec(fullname, _Loader(module), origin=module.path, is_package=is_package)
        spec.has_location = module.path is not None
        if module.locations is not None:
            spec.submodule_search_locations = list(module.locations)  # for submodules that the driver had not loaded
        return spec


class _Loader(InspectLoader):
    def __init__(self, module: UserModule) -> None:
        self._module = module

    def get_source(self, fullname: str) -> str:
        return self._module.source

    def is_package(self, fullname: str) -> bool:
        return self._module.locations is not None

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._module.source, self._module.path or f"<package {fullname}>", "exec", dont_inherit=True)


def install(modules: Sequence[UserModule]) -> None:
    """Make modules importable in this process, instead of the modules of an earlier job."""
    remove()
    sys.meta_path.insert(0, _Finder(modules))


def remove() -> None:
    """Remove the modules of the job that ran in this process, because the process may run another job."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name, module in sys.modules.copy().items():
        if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), _Loader):
            del sys.modules[name]
