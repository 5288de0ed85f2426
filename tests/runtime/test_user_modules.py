"""Modules beside the user's script, in processes that cannot import them by themselves."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from headgate.runtime.user_modules import UserModule, collect, install, program_folder, remove

SRC = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A script with a module and a package beside it."""
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "__init__.py").write_text("from shapes.round import AREA\n")
    (tmp_path / "shapes" / "round.py").write_text("AREA = 3.0\nclass Wrong(ValueError): ...\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "inner.py").write_text("WORD = 'bare'\n")
    (tmp_path / "helpers.py").write_text(
        "import pyarrow as pa\n"
        "import bare.inner\n"
        "from shapes import AREA\n"
        "from shapes.round import Wrong\n"
        "def area(batch):\n"
        "    if bare.inner.WORD != 'bare':\n"
        "        raise Wrong('no')\n"
        "    return pa.record_batch({'n': [AREA * n for n in batch['n'].to_pylist()]})\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import pyarrow as pa\n"
        "import headgate as hg\n"
        "from helpers import area\n"
        "if 'spark' in sys.argv:\n"
        "    from headgate.spark.session import build_session\n"
        "    env = hg.StreamEnvironment(build_session('local[1]', 'test'))\n"
        "else:\n"
        "    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(1, processes=True))\n"
        "sys.path[:] = [path for path in sys.path if path != sys.argv[1]]\n"  # so that children do not get it
        "rows = env.from_source(hg.sources.iterable([[{'n': 1.0}, {'n': 2.0}]]))\n"
        "print(rows.map_batches(area, schema=pa.schema({'n': pa.float64()})).collect()['n'].to_pylist())\n"
    )
    return script


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": SRC}
    return subprocess.run(command, capture_output=True, text=True, timeout=290, env=environment, cwd=cwd, check=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["processes", "spark"])
def test_functions_of_modules_beside_the_script(program: Path, where: str) -> None:
    done = run([sys.executable, str(program), str(program.parent), where], cwd=Path("/"))
    assert (done.stdout, done.returncode) == ("[3.0, 6.0]\n", 0), done.stderr


def test_a_program_that_is_run_as_a_module(program: Path) -> None:
    (program.parent / "tools").mkdir()
    program.rename(program.parent / "tools" / "main.py")
    done = run([sys.executable, "-m", "tools.main", str(program.parent), "processes"], cwd=program.parent)
    assert (done.stdout, done.returncode) == ("[3.0, 6.0]\n", 0), done.stderr


def main_module(file: str | Path | None, name: str | None = None) -> ModuleType:
    module = ModuleType("__main__")
    if file is not None:
        module.__file__ = str(file)
    module.__spec__ = None if name is None else ModuleSpec(name, None)
    return module


def test_which_folder_is_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert program_folder(main_module("/work/job/script.py")) == Path("/work/job")
    assert program_folder(main_module("/work/job/tools/deep/main.py", "tools.deep.main")) == Path("/work/job")
    assert program_folder(main_module("/work/job/tools/__main__.py", "tools.__main__")) == Path("/work/job")
    for main in (
        None,
        main_module(None),
        main_module("/usr/lib/python3/dist-packages/tool/__main__.py", "tool.__main__"),
        main_module(pytest.__file__, "pytest.__main__"),
        main_module(os.__file__, "os"),
        main_module(Path(sysconfig.get_path("scripts")) / "tool"),
    ):
        assert program_folder(main) == tmp_path


def test_installed_modules_stay(tmp_path: Path) -> None:
    """Even where they are installed below the program's folder."""
    for folder in ("lib/site-packages", "own"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "m.py").write_text("x = 1\n")
    loaded = {}
    for name, file in {"installed": "lib/site-packages/m.py", "own": "own/m.py", "gone": "own/gone.py"}.items():
        loaded[name] = ModuleType(name)
        loaded[name].__file__ = str(tmp_path / file)
        loaded[name].__spec__ = ModuleSpec(name, None)
    loaded["headgate.own"] = loaded["own"]
    assert [module.name for module in collect(loaded, tmp_path)] == ["own"]
    assert collect(loaded, tmp_path / "elsewhere") == ()


@pytest.fixture
def clean() -> Iterator[None]:
    yield
    remove()


@pytest.mark.usefixtures("clean")
def test_modules_of_one_job_are_not_those_of_the_next() -> None:
    """A process that Spark uses again has loaded another version."""
    for value in (1, 2):
        install([UserModule("beside_it", "/job/beside_it.py", f"value = {value}\n", None)])
        import beside_it  # type: ignore[import-not-found]

        assert (beside_it.value, beside_it.__file__) == (value, "/job/beside_it.py")
    remove()
    with pytest.raises(ModuleNotFoundError):
        import beside_it


@pytest.mark.usefixtures("clean")
def test_tracebacks_show_the_line() -> None:
    install([UserModule("beside_it", "/job/beside_it.py", "def half(n):\n    return n // 0  # half\n", None)])
    import traceback

    import beside_it

    with pytest.raises(ZeroDivisionError) as caught:
        beside_it.half(1)
    assert "return n // 0  # half" in "".join(traceback.format_exception(caught.value))


def test_modules_may_be_loaded_while_they_are_collected(tmp_path: Path) -> None:
    """The garbage collector may run at any time, and after its callbacks another thread.

    A list of the items makes so many tuples that the collector runs in it, up to Python 3.11.
    """
    modules = {f"module{number}": ModuleType(f"module{number}") for number in range(2000)}

    def load(_phase: str, _info: object) -> None:
        modules[f"loaded{len(modules)}"] = ModuleType("loaded")

    thresholds = gc.get_threshold()
    gc.callbacks.append(load)
    gc.set_threshold(50)
    try:
        assert collect(modules, tmp_path) == ()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(load)
