"""The namespace layout: folder X is `papergym.X`, no top-level package shadows another, imports go one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("papergym", "kernels", "model", "judge", "data_pipeline", "distill", "rl", "bench")
# Each layer may import the ones before it. distill and rl share a rank: neither may import the other.
RANKS = {"root": 0, "kernels": 1, "model": 2, "judge": 3, "data_pipeline": 4, "training": 5, "distill": 6, "rl": 6}
RANKS |= {"planning": 7, "bench": 8}
FREE = {"papergym/cli.py", "papergym/recipes.py"}
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def layer(parts: tuple[str, ...]) -> str:
    """The layer of papergym.<parts>."""
    return parts[0] if parts and parts[0] in RANKS else "root"


def imported_modules(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names


def test_no_top_level_folder_is_a_regular_package():
    assert [folder for folder in (*FOLDERS, "tests") if (ROOT / folder / "__init__.py").exists()] == []


def test_every_subfolder_with_modules_is_a_package():
    folders = {path.parent for path in SOURCES if path.parent.parent != ROOT}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way_and_through_the_namespace(path):
    relative = path.relative_to(ROOT)
    own = layer(relative.parts[1:] if relative.parts[0] == "papergym" else relative.parts)
    for name in imported_modules(path):
        first, *rest = name.split(".")
        assert first not in FOLDERS or first == "papergym", f"{relative} imports {name} past the namespace"
        if first == "papergym" and str(relative) not in FREE:
            other = layer(tuple(rest))
            assert other == own or RANKS[other] < RANKS[own], f"{relative} ({own}) imports {name} ({other})"


def test_parts_are_importable_from_any_folder_and_kernels_is_not_ours(tmp_path):
    parts = ", ".join(f"papergym.{folder}" for folder in FOLDERS if folder != "papergym")
    code = f"import {parts}, papergym.environment, importlib.util; assert importlib.util.find_spec('kernels') is None"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_help_needs_no_torch(tmp_path):
    code = (
        "import sys\nsys.argv=['papergym','--help']\nfrom papergym.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "build" in done.stdout
