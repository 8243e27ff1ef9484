"""One name, one meaning: no class, type alias or public constant is defined in two modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("opboost", "parties", "protocols")


def names_of(module: ast.Module) -> set[str]:
    """Top-level classes, and names that are assigned and begin with a capital: type aliases and constants."""
    found = {node.name for node in module.body if isinstance(node, ast.ClassDef)}
    for node in module.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {name for name in found if name[0].isupper() and len(name) > 1}


def defined_twice(files: dict[str, str]) -> dict[str, list[str]]:
    """Every name that several of these modules define, with the modules."""
    modules = defaultdict(list)
    for path, text in files.items():
        for name in names_of(ast.parse(text)):
            modules[name].append(path)
    return {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}


def test_every_name_has_one_definition() -> None:
    files = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert defined_twice(files) == {}


def test_a_second_definition_is_found() -> None:
    twice = {
        "one.py": "class Rows: ...\nLIMIT = 1\n",
        "two.py": "Rows = list[int]\nLIMIT: int = 2\n",
        "three.py": "_LIMIT = 3\n",
    }
    assert defined_twice(twice) == {"Rows": ["one.py", "two.py"], "LIMIT": ["one.py", "two.py"]}
