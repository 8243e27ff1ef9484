"""Layout rules: what a package may import, where special dependencies live, sizes, names, and the top level."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import opboost

ROOT = Path(__file__).parent.parent
PACKAGES = ("opboost", "parties", "protocols")

# Each package of `parties` may import those before it.
PARTIES = (
    "errors",
    "progress",
    "storage",
    "tables",
    "runs",
    "ledger",
    "config",
    "session",
    "vertical",
    "horizontal",
    "cluster",
    "service",
    "reports",
    "doctor",
    "onboarding",
    "tuning",
    "credit",
    "jobs",
    "commands",
    "cli",
)
STRANGERS = {"parties.vertical": "parties.horizontal", "parties.horizontal": "parties.vertical"}

GROUND = ("opboost.arrays", "opboost.errors", "opboost.rng", "opboost.schema", "opboost.table_format")
STEPS = (
    *GROUND,
    "opboost.privacy",
    "opboost.trees",
    "opboost.denoise",
    *(
        f"opboost.{step}"
        for step in (
            "cell_grid",
            "column_positions",
            "columns",
            "label_noise",
            "desensitize",
            "map_analysis",
            "mechanism_settings",
            "metrics",
            "fitting",
            "order_metrics",
            "preprocess",
            "ranking",
            "routing",
            "uplift",
        )
    ),
)
# What recipes share, and the recipes, none of which imports another.
ROWS = (*GROUND, "opboost.privacy", "opboost.trees", "opboost.horizontal.rows")
NOISE = (*ROWS, "opboost.horizontal.noise")
SPLITS = (*NOISE, "opboost.horizontal.splits")
TASKS = ("opboost.horizontal.public_task", "opboost.horizontal.tree_rules")
RECIPES = ("dpboost", "federated", "inprivate", "recommended", "sgbdt")

# Importer (the longest prefix counts) and what it may import of ours.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "opboost": STEPS,
    "opboost.__init__": ("opboost",),
    "opboost.arrays": (),
    "opboost.errors": (),
    "opboost.rng": ("opboost.errors",),
    "opboost.schema": ("opboost.arrays", "opboost.errors", "opboost.table_format"),
    "opboost.table_format": ("opboost.errors",),
    "opboost.privacy": (*GROUND, "opboost.privacy"),
    "opboost.trees": ("opboost.arrays", "opboost.errors", "opboost.trees"),
    "opboost.preprocess": (*GROUND, "opboost.privacy.domain"),
    "opboost.mechanism_settings": (*GROUND, "opboost.privacy", "opboost.preprocess"),
    "opboost.desensitize": (*GROUND, "opboost.privacy", "opboost.mechanism_settings", "opboost.preprocess"),
    "opboost.split_tests": (*STEPS, "opboost.vertical"),
    "opboost.credit": (*STEPS, "opboost.credit"),
    "opboost.export": (*GROUND, "opboost.trees", "opboost.export"),
    "opboost.explanation": (*GROUND, "opboost.trees", "opboost.explanation"),
    "opboost.denoise": (*GROUND, "opboost.privacy", "opboost.denoise"),
    "opboost.fitting": (*GROUND, "opboost.trees", "opboost.denoise", "opboost.fitting"),
    "opboost.fit_quality": (*STEPS, "opboost.vertical"),
    "opboost.horizontal": SPLITS,
    "opboost.horizontal.rows": ROWS,
    "opboost.horizontal.noise": NOISE,
    **{f"opboost.horizontal.{recipe}": (*SPLITS, *TASKS, f"opboost.horizontal.{recipe}") for recipe in RECIPES},
    "opboost.sklearn": ("opboost",),
    "opboost.sklearn.vertical": PACKAGES,
    "opboost.sklearn.simulated_parties": PACKAGES,
    "protocols": ("protocols",),
    **{
        f"parties.{package}": (
            *STEPS,
            "opboost.credit",
            "opboost.explanation",
            "opboost.export",
            "opboost.fit_quality",
            "opboost.split_tests",
            "opboost.vertical",
            "opboost.horizontal",
            "protocols",
            *(
                f"parties.{above}"
                for above in PARTIES[: i + 1]
                if STRANGERS.get(f"parties.{package}") != f"parties.{above}"
            ),
        )
        for i, package in enumerate(PARTIES)
    },
    "parties.__init__": (),
    "parties.commands.compile_loops": PACKAGES,
}

ONLY_IN = {
    "zmq": {"protocols/transport/zmq_*.py"},
    "numba": {"opboost/trees/kernels/*.py", "opboost/privacy/sampling.py", "opboost/denoise/kernels.py"},
    "private_set_intersection": {"protocols/alignment/blinding.py"},
    "rbcl": {"protocols/alignment/random_transfers.py"},
    "jinja2": {"parties/reports/page.py"},
    "matplotlib": {"parties/reports/figures.py", "opboost/sklearn/shape_functions.py"},
    "dask": {"parties/cluster/*.py"},
    "distributed": {"parties/cluster/*.py"},
    "fastapi": {"parties/service/*.py", "parties/jobs/serve_scores.py"},
    "uvicorn": {"parties/jobs/serve_scores.py", "parties/service/connections.py"},
    "optuna": {"parties/tuning/*.py"},
    "fairlearn": {"opboost/credit/fairness.py"},
    "prometheus_client": {"parties/service/metrics.py", "parties/jobs/run_metrics.py"},
}

MOST_LINES = 300
MOST_MODULES = 22
VAGUE = {"utils", "util", "common", "base", "manager", "helper", "helpers", "misc"}

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "data",
    "docs",
    "opboost",
    "parties",
    "protocols",
    "pyproject.toml",
    "scripts",
    "tests",
}

FILES = [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {".".join(path.with_suffix("").parts): path for path in FILES}
ALL_CODE = [*FILES, *(p.relative_to(ROOT) for folder in ("scripts", "data") for p in (ROOT / folder).rglob("*.py"))]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Every module and its code."""
    return ((module, parse(path)) for module, path in MODULES.items())


@cache
def imports(tree: ast.AST) -> tuple[str, ...]:
    """Every module that a piece of code imports, inside functions and conditions too."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            names = (f"{home}.{alias.name}" for alias in node.names)
            found += (name if name in MODULES or f"{name}.__init__" in MODULES else home for name in names)
    return tuple(found)


def is_under(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def forbidden(module: str, tree: ast.AST) -> list[str]:
    """Imports of ours that the table does not allow to a module."""
    allowed = MAY_IMPORT[max((rule for rule in MAY_IMPORT if is_under(module, rule)), key=len)]
    ours = (
        name for name in imports(tree) if name.startswith((".", "tests", "scripts")) or name.split(".")[0] in PACKAGES
    )
    return sorted({name for name in ours if not any(is_under(name, prefix) for prefix in allowed)})


def test_every_module_imports_only_what_its_package_may_know() -> None:
    assert {module: found for module, tree in trees() if (found := forbidden(module, tree))} == {}


@pytest.mark.parametrize(
    ("module", "code", "found"),
    [
        ("opboost.privacy.laws", "from opboost.trees import grower", ["opboost.trees.grower"]),
        ("opboost.privacy.laws", "def f():\n    import opboost.trees.tree", ["opboost.trees.tree"]),
        ("opboost.trees.grower", "from opboost.privacy.laws import Law", ["opboost.privacy.laws"]),
        (
            "opboost.trees.grower",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import parties",
            ["parties"],
        ),
        ("opboost.denoise.mixture", "from opboost.trees.tree import Tree", ["opboost.trees.tree"]),
        ("opboost.vertical", "from protocols.messages.vertical import Offer", ["protocols.messages.vertical"]),
        (
            "opboost.horizontal.sgbdt.training",
            "from opboost.horizontal.dpboost import training",
            ["opboost.horizontal.dpboost.training"],
        ),
        (
            "opboost.horizontal.noise.leaf_noise",
            "from opboost.horizontal.splits import gridless",
            ["opboost.horizontal.splits.gridless"],
        ),
        ("opboost.sklearn.sgbdt", "from parties.jobs import train_chain", ["parties.jobs.train_chain"]),
        ("opboost.errors", "from opboost.arrays import Values", ["opboost.arrays"]),
        ("protocols.transport.codec", "from opboost.arrays import Ranks", ["opboost.arrays"]),
        ("protocols.transport.codec", "from . import channel", ["."]),
        ("parties.jobs.train_vertical", "from opboost import OpBoostClassifier", ["opboost"]),
        ("parties.jobs.train_vertical", "import tests.oracles", ["tests.oracles"]),
        ("parties.ledger.budget", "from parties.config.vertical import read_run", ["parties.config.vertical"]),
        ("parties.horizontal.worker", "from parties.vertical import party_a", ["parties.vertical.party_a"]),
        ("parties.jobs.train_vertical", "import numpy\nfrom opboost import rng\nimport protocols.errors", []),
    ],
)
def test_a_forbidden_import_is_caught_wherever_it_stands(module: str, code: str, found: list[str]) -> None:
    assert forbidden(module, ast.parse(code)) == found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checking count too."""
    graph = {module: {name for name in imports(tree) if name in MODULES} for module, tree in trees()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)


def test_a_special_dependency_is_imported_only_where_it_belongs() -> None:
    users = {
        package: [MODULES[m].as_posix() for m, tree in trees() if any(is_under(n, package) for n in imports(tree))]
        for package in ONLY_IN
    }
    assert [package for package, paths in users.items() if not paths] == []
    strangers = {
        package: [path for path in paths if not any(fnmatch.fnmatch(path, place) for place in ONLY_IN[package])]
        for package, paths in users.items()
    }
    assert {package: paths for package, paths in strangers.items() if paths} == {}


def runs_foreign_code(tree: ast.AST) -> list[str]:
    """Names through which a file or a message could bring code along, or hide an import from this test."""
    modules = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
    builtins = {"__import__", "compile", "eval", "exec"}
    calls = {"import_module", "read_pickle", "to_pickle", "unsafe_load"}
    found = [name for name in imports(tree) if name.split(".")[0] in modules]
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in builtins | calls:
                found.append(name)
            case ast.Attribute(attr=name) if name in calls:
                found.append(name)
            case ast.keyword(arg="allow_pickle") | ast.Attribute(value=ast.Name(id="yaml"), attr="load"):
                found.append("allow_pickle or yaml.load")
    return found


def test_no_file_or_message_can_bring_code_along() -> None:
    code = [path for path in ALL_CODE if path != Path("opboost/__init__.py")]
    assert {path: found for path in code if (found := runs_foreign_code(parse(path)))} == {}


@pytest.mark.parametrize(
    "code", ["import pickle", "pd.read_pickle(p)", "np.load(p, allow_pickle=True)", "yaml.load(t)", "eval(x)"]
)
def test_a_way_to_bring_code_along_is_caught(code: str) -> None:
    assert len(runs_foreign_code(ast.parse(code))) == 1


def test_noise_has_no_other_source_than_the_bit_source() -> None:
    modules = [m for m in MODULES if is_under(m, "opboost.privacy") or m == "opboost.desensitize"]
    imported = [name for m in modules for name in imports(parse(MODULES[m]))]
    assert [name for name in imported if name.split(".")[0] == "secrets" or "random" in name] == []
    attributes = [n.attr for m in modules for n in ast.walk(parse(MODULES[m])) if isinstance(n, ast.Attribute)]
    assert "random" not in attributes


def test_no_module_is_longer_than_300_lines() -> None:
    lengths = {path.as_posix(): len((ROOT / path).read_text().splitlines()) for path in FILES}
    assert {path: n for path, n in lengths.items() if n > MOST_LINES} == {}


def test_fewer_than_60_places_are_kept_from_the_formatter() -> None:
    sources = (path for package in (*PACKAGES, "scripts", "tests") for path in (ROOT / package).rglob("*.py"))
    assert sum(path.read_text().count("# fmt: " + "skip") for path in sources) < 60


def test_no_package_has_more_than_22_modules() -> None:
    sizes = Counter(path.parent.as_posix() for path in FILES if path.name != "__init__.py")
    assert {package: n for package, n in sizes.items() if n > MOST_MODULES} == {}


def test_a_module_is_named_after_what_it_does() -> None:
    assert [path for path in FILES if VAGUE & set(path.stem.split("_"))] == []


def test_the_top_level_is_as_fixed() -> None:
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    found = {path.name for path in ROOT.iterdir() if not any(fnmatch.fnmatch(path.name, line) for line in ignored)}
    assert found - {".git"} == TOP_LEVEL


def test_tests_are_no_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_no_test_module_imports_another() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "tests").rglob("*.py")
        # Whoever imports one writes `tests` without `.support` behind it: other files need not be parsed.
        if re.search(r"\btests\b(?!\.support\b)", text := path.read_text())
        for name in imports(ast.parse(text))
        if is_under(name, "tests") and not is_under(name, "tests.support")
    }
    assert found == set()


def test_every_module_has_a_test_file_of_its_name_in_the_same_place() -> None:
    found = [path for path in FILES if not path.stem.startswith("__")]
    assert [path for path in found if not (ROOT / "tests" / path.parent / f"test_{path.name}").exists()] == []


def test_the_public_names_are_sorted_and_each_can_be_had() -> None:
    assert opboost.__all__ == sorted(opboost.__all__)
    assert [name for name in opboost.__all__ if getattr(opboost, name).__name__ != name] == []
    declared = {
        name.asname or name.name
        for node in ast.walk(parse(Path("opboost/__init__.py")))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert declared - {"import_module", "TYPE_CHECKING"} == set(opboost.__all__)


def test_the_package_lists_its_public_names_before_any_is_loaded_and_knows_its_version() -> None:
    code = (
        "import sys, opboost; names = dir(opboost); "
        "print(sorted({*opboost.__all__, '__version__'} - set(names)), names == sorted(set(names)), "
        "opboost.__version__, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == f"[] True {version('opboost')} False\n"


def test_any_other_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'opboost' has no attribute 'OpBoost'"):
        opboost.OpBoost  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("opboost.OpBoostClassifier")
