"""The house rules: sizes, first lines, names, layers, and what may stand in a file."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "trimtab"
SOURCES = sorted(
    path for top in ("src", "tests", "scripts", "benchmarks") for path in (ROOT / top).rglob("*.py")
)
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
PURE = ("types", "errors", "metrics", "catalog", "ops", "objectives", "advantages", "algorithms")
TEXTS = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".sh", ""}
SKIPPED_FOLDERS = {"runs", "models", "build", "dist", "__pycache__"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_there_is_something_to_check():
    assert len(SOURCES) > 20
    assert PACKAGE / "types.py" in SOURCES or (PACKAGE / "types").is_dir()


def test_no_file_is_longer_than_its_budget():
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_its_budget():
    too_long = {
        f"{name_of(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert too_long == {}


def test_every_file_begins_with_what_it_is_and_then_the_licence():
    wrong = []
    for path in (path for path in SOURCES if path.stat().st_size):
        tree = parsed(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        doc = tree.body[0] if tree.body and ast.get_docstring(tree) else None
        after = doc.end_lineno if doc else None
        if (
            doc is None
            or doc.lineno != 1
            or lines[after : after + 1] != ["# SPDX-License-Identifier: Apache-2.0"]
        ):
            wrong.append(name_of(path))
    assert wrong == []


def test_no_room_is_a_drawer():
    drawer = re.compile(r"(^|_)(utils?|helpers?|managers?|misc|common)(_|$)")
    names = [
        name_of(path) for path in SOURCES if any(drawer.search(part) for part in path.with_suffix("").parts)
    ]
    classes = [
        f"{name_of(path)} {node.name}"
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Manager", "Helper", "Utils"))
    ]
    assert names + classes == []


def test_only_the_command_line_prints():
    printing = [
        f"{name_of(path)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if room(path) != "cli"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def test_public_names_of_the_pure_rooms_say_what_they_are():
    silent = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in PACKAGE.rglob("*.py")
        if room(path) in PURE
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        if not node.name.startswith("_") and ast.get_docstring(node) is None
    ]
    assert silent == []


def test_names_of_test_files_are_unique():
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_path_of_a_machine_stands_in_the_tree():
    machine = re.compile(r"(?<![\w.])/(?:work|farm|root|home|Users|opt)/\w|/tmp/(?:lab|research|anchors)")
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f == ".ci" or not (f.startswith(".") or f in SKIPPED_FOLDERS)]
        for path in (Path(folder) / file for file in files):
            if path.suffix in TEXTS and path.stat().st_size < 2_000_000:
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                found += [f"{name_of(path)}:{i}" for i, line in enumerate(lines, 1) if machine.search(line)]
    assert found == []


def test_imports_run_down_only():
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["trimtab", "trimtab.cli", "trimtab.errors"])
def test_light_modules_load_no_heavy_library(module: str):
    heavy = ("torch", "transformers", "pyarrow", "pydantic", "numpy", "rich")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_wheel_ships_recipes_and_the_typing_mark(tmp_path: Path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed (make setup installs it)")
    from hatchling.builders.wheel import WheelBuilder

    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("trimtab/")}
    inside = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert packed == {f"trimtab/{path.relative_to(PACKAGE).as_posix()}" for path in inside}
    assert "trimtab/py.typed" in packed


def test_every_dependency_is_pinned_once():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    names = Counter(re.split("==", line)[0].lower().replace("_", "-") for line in pins)
    assert [name for name, count in names.items() if count > 1] == []
    required = re.findall(
        r'^\s+"([A-Za-z0-9-]+)[>=]', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M
    )
    assert {name.lower() for name in required} - set(names) == set()
