"""Rules for the code: sizes, public names, and what the import of the package loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import headgate

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAX_FILE, MAX_FUNCTION, MAX_POSITIONAL = 500, 70, 5
MAX_FOLDER_FILES, MAX_FOLDER_SHARE = 32, 0.12
#: Tests of one process, which parses all sources once.
OUTLINED = pytest.mark.xdist_group("outlines")


class Outline(NamedTuple):
    """What tests look at in a source file. The trees would take up memory that the garbage collector passes over."""

    docstring: str | None
    classes: list[str]
    lines_of_functions: dict[str, int]


@cache
def outlines() -> dict[Path, Outline]:
    found = {}
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        lines = {
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        found[path] = Outline(ast.get_docstring(tree), classes, lines)
    return found


def test_no_file_has_more_than_500_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert len(lengths) > 10
    assert {name: length for name, length in lengths.items() if length > MAX_FILE} == {}


def test_no_folder_holds_too_many_files_or_lines() -> None:
    """Counts the files that lie in a folder itself, not those of its subfolders."""
    lines = {path: len(path.read_text().splitlines()) for path in SOURCES}
    files_of = Counter(path.parent for path in SOURCES)
    lines_of = Counter({folder: sum(lines[path] for path in SOURCES if path.parent == folder) for folder in files_of})
    most_lines = MAX_FOLDER_SHARE * sum(lines.values())
    assert len(files_of) > 10
    assert {str(folder): count for folder, count in files_of.items() if count > MAX_FOLDER_FILES} == {}
    assert {str(folder): count for folder, count in lines_of.items() if count > most_lines} == {}


@OUTLINED
def test_every_function_fits_on_a_screen() -> None:
    lines = {name: count for outline in outlines().values() for name, count in outline.lines_of_functions.items()}
    assert len(lines) > 1000
    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION} == {}


def _positional_fields(node: ast.ClassDef) -> int:
    """Return how many fields of a dataclass its constructor takes by position."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    if not any("dataclass" in each and "kw_only=True" not in each for each in decorators):
        return 0
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field)]
    kinds = [ast.unparse(each.annotation) for each in fields]
    given = fields[: kinds.index("KW_ONLY")] if "KW_ONLY" in kinds else fields
    return sum("init=False" not in ast.unparse(each) for each in given)


def test_a_dataclass_takes_more_than_five_fields_by_name() -> None:
    """ruff checks the same of functions."""
    paths = [*SOURCES, *(ROOT / "scripts").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    counts = {
        f"{path.relative_to(ROOT)}: {node.name}": _positional_fields(node)
        for path in paths
        if "dataclass" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }
    assert 5 in counts.values()
    assert {place: count for place, count in counts.items() if count > MAX_POSITIONAL} == {}


@OUTLINED
def test_no_two_modules_or_public_classes_have_the_same_name() -> None:
    """Of modules and of public classes."""
    modules = Counter(path.stem for path in SOURCES if path.name != "__init__.py")
    classes = Counter(name for each in outlines().values() for name in each.classes if not name.startswith("_"))
    assert [name for names in (modules, classes) for name, count in names.items() if count > 1] == []


@OUTLINED
def test_every_module_has_a_docstring() -> None:
    modules = {path: outline for path, outline in outlines().items() if path.name != "__init__.py"}
    assert [str(path) for path, outline in modules.items() if not outline.docstring] == []


def test_the_contract_on_pyspark_names_every_part_that_must_not_import_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (named,) = (each["source_modules"] for each in contracts if "pyspark" in each.get("forbidden_modules", ()))
    folder = ROOT / "src" / "headgate"
    parts = {path.parent.name if path.name == "__init__.py" else path.stem
             for path in [*folder.glob("*.py"), *folder.glob("*/__init__.py")]}  # fmt: skip
    assert sorted(named) == sorted(f"headgate.{part}" for part in parts - {"headgate", "spark", "demo"})


def test_public_names_exist_sorted_and_unique() -> None:
    assert list(headgate.__all__) == sorted(set(headgate.__all__))
    assert [name for name in headgate.__all__ if getattr(headgate, name, None) is None] == []


@pytest.mark.parametrize(
    "statement",
    [
        "import headgate",
        "import headgate as hg; hg.StreamEnvironment; hg.LocalDeployment; hg.sources; hg.sinks; hg.Watermark",
    ],
)
def test_a_local_job_loads_no_pyspark(statement: str) -> None:
    check = f"import sys; {statement}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0


def test_the_example_in_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    example = next(text for kind, text in blocks if kind == "python")
    script = tmp_path / "example.py"
    script.write_text(example)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == next(text for kind, text in blocks if kind == "text"), ran.stderr
    assert ran.stderr == ""
    assert len(example.splitlines()) <= 20


def _starts_of_python(tree: ast.Module) -> dict[int, list[str]]:
    """Return the commands that run a module or a text with Python, by line: what stands before `-m` or `-c`."""
    starts = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple | ast.Call):
            parts = [ast.unparse(each) for each in (node.args if isinstance(node, ast.Call) else node.elts)]
            options = {"'-m'", "'-c'"} if "sys.executable" in parts else {"'-m'"}  # other programs have a -c too
            if found := options.intersection(parts):
                starts[node.lineno] = parts[: min(map(parts.index, found))]
    return starts


def test_processes_import_nothing_from_the_working_folder() -> None:
    """Without `-P` or `-I`, `python -m` and `python -c` import modules of the working folder first."""
    assert _starts_of_python(ast.parse("[sys.executable, '-m', 'json']\nrun(python, '-P', '-m', 'json')")) == {
        1: ["sys.executable"],
        2: ["python", "'-P'"],
    }
    starts = {
        f"{path.relative_to(ROOT)}:{line}": before
        for path in SOURCES
        if re.search("""["']-[mc]["']""", text := path.read_text())
        for line, before in _starts_of_python(ast.parse(text)).items()
    }
    assert len(starts) > 10
    assert [place for place, before in starts.items() if not {"'-P'", "'-I'"}.intersection(before)] == []


def _bounding(tree: ast.Module) -> set[str]:
    """Return the functions and classes that bound a time by `within`, themselves or in what they use, by name."""
    used = {
        node.name: {getattr(part, kind, None) for part in ast.walk(node) for kind in ("id", "attr", "arg")}
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    found = {"within"}
    while more := {name for name, names in used.items() if names & found} - found:
        found |= more
    return found


def test_tests_that_bound_the_time_of_an_end_run_alone() -> None:
    """In `make test`, or with the mark `ends` in `make soak`. Others cannot fail because the machine is busy."""
    marks_of_them = ("mark.alone", "mark.ends")
    bounding: dict[str, bool] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "from tests.ending import" not in (text := path.read_text()):
            continue
        tree = ast.parse(text)
        assigned = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
        of_module = any(mark in text for mark in marks_of_them for text in assigned)
        names = _bounding(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and node.name in names:
                marks = [ast.unparse(each) for each in node.decorator_list]
                bounding[f"{path.name}::{node.name}"] = of_module or any(
                    f"pytest.{mark}" in marks for mark in marks_of_them
                )
    assert len(bounding) > 50
    assert [name for name, alone in sorted(bounding.items()) if not alone] == []
