"""What the packages may know of each other, where special dependencies live, and what the top level holds."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import opboost

ROOT = Path(__file__).parent.parent
PACKAGES = ("opboost", "parties", "protocols")

_GROUND = ("opboost.arrays", "opboost.errors", "opboost.rng", "opboost.schema")
_STEPS = (
    *_GROUND,
    "opboost.metrics",
    "opboost.column_positions",
    "opboost.order_metrics",
    "opboost.privacy",
    "opboost.trees",
    "opboost.preprocess",
    "opboost.desensitize",
    "opboost.map_analysis",
    "opboost.ranking",
    "opboost.routing",
)

# What the recipes share; one recipe never imports another.
_RECIPE = (
    *_GROUND,
    "opboost.privacy",
    "opboost.trees",
    *(
        f"opboost.horizontal.{shared}"
        for shared in (
            "client_rows",
            "column_turns",
            "initial_score",
            "leaf_noise",
            "noisy_holder",
            "noisy_trees",
            "private_splits",
            "public_shape",
            "public_table",
            "public_task",
            "query_holder",
            "record_holder",
            "shared_noise",
            "skellam_sums",
            "split_candidates",
            "weight_updates",
        )
    ),
)

# Importer (the longest prefix counts) and what it may import of ours.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "opboost": _STEPS,
    "opboost.__init__": ("opboost",),
    "opboost.arrays": (),
    "opboost.errors": (),
    "opboost.rng": ("opboost.errors",),
    "opboost.schema": ("opboost.arrays", "opboost.errors"),
    "opboost.privacy": (*_GROUND, "opboost.privacy"),
    "opboost.trees": ("opboost.arrays", "opboost.errors", "opboost.trees"),
    "opboost.preprocess": (*_GROUND, "opboost.privacy.domain"),
    "opboost.fit_quality": (*_STEPS, "opboost.vertical"),
    "opboost.desensitize": (*_GROUND, "opboost.privacy", "opboost.preprocess"),
    "opboost.horizontal": _RECIPE,
    "opboost.horizontal.dpboost.training": (*_RECIPE, "opboost.horizontal.splits.gridless"),
    "opboost.horizontal.dpboost.as_published": (*_RECIPE, "opboost.horizontal.dpboost.training"),
    "opboost.horizontal.inprivate.training": (*_RECIPE, "opboost.horizontal.splits.gridless"),
    "opboost.horizontal.inprivate.owners": (*_RECIPE, "opboost.horizontal.inprivate.training"),
    "opboost.horizontal.sgbdt.training": (*_RECIPE, "opboost.horizontal.splits.learned_column_sampling"),
    "opboost.horizontal.sgbdt.as_published": (*_RECIPE, "opboost.horizontal.sgbdt.training"),
    "opboost.horizontal.sgbdt.owners": (
        *_RECIPE,
        "opboost.horizontal.sgbdt.training",
    ),
    "opboost.horizontal.federated.question_verifier": (*_RECIPE, "opboost.horizontal.federated.training"),
    "opboost.horizontal.federated.owners": (
        *_RECIPE,
        "opboost.horizontal.federated.question_verifier",
        "opboost.horizontal.federated.training",
        "opboost.horizontal.noise.query_account",
    ),
    "opboost.sklearn.vertical": PACKAGES,
    "opboost.sklearn.simulated_rows": (
        *_STEPS,
        "opboost.horizontal.rows.public_grid",
        "opboost.horizontal.public_task",
    ),
    "opboost.horizontal.public_task": (*_RECIPE, "opboost.horizontal.splits.gridless"),
    "opboost.sklearn.dpboost": PACKAGES,
    "opboost.sklearn.federated": PACKAGES,
    "opboost.sklearn.federated_fitting": PACKAGES,
    "opboost.sklearn.federated_methods": (),
    "opboost.sklearn.federated_promise": PACKAGES,
    "opboost.shape_functions": (*_GROUND, "opboost.trees"),
    "opboost.sklearn.inprivate": PACKAGES,
    "opboost.sklearn.sgbdt": PACKAGES,
    "opboost.sklearn.sgbdt_fitting": PACKAGES,
    "opboost.sklearn.simulated_parties": PACKAGES,
    "protocols": ("protocols",),
    "parties": ("parties", "protocols", *_STEPS, "opboost.fit_quality", "opboost.vertical", "opboost.horizontal"),
}

STEPS_OF_KERNELS = (
    "packing",
    "gradients",
    "histograms",
    "cuts",
    "division",
    "nodes",
    "prediction",
    "random_cuts",
    "threads",
    "walk",
)

_STEPS_OF_RELEASES = ("accounts", "release", "survey", "transfer")
STEPS_OF_CLUSTERS = (*_STEPS_OF_RELEASES, "batches", "cluster", "parts", "prediction", "preparing", "rows", "training")

ONLY_IN = {
    "zmq": {f"protocols/zmq_{what}.py" for what in ("authenticator", "channel", "connections", "listener", "socket")},
    "numba": {
        *(f"opboost/trees/kernels/{step}.py" for step in STEPS_OF_KERNELS),
        "opboost/privacy/sampling.py",
    },
    "private_set_intersection": {"protocols/alignment/blinding.py"},
    "jinja2": {"parties/reports/page.py"},
    "matplotlib": {"parties/reports/figures.py", "opboost/shape_functions.py"},
    "dask": {"parties/cluster/dask_cluster.py", "parties/cluster/release.py", "parties/cluster/training.py"},
    "distributed": {f"parties/dask_{step}.py" for step in STEPS_OF_CLUSTERS},
}

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "data",
    "opboost",
    "parties",
    "protocols",
    "pyproject.toml",
    "scripts",
    "tests",
}

FILES = [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {".".join(path.with_suffix("").parts): path for path in FILES}
ALL_CODE = [*FILES, *(p.relative_to(ROOT) for folder in ("scripts", "data") for p in (ROOT / folder).glob("*.py"))]


def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that a piece of code imports, inside functions and conditions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            for alias in node.names:
                name = f"{home}.{alias.name}"
                yield name if name in MODULES or f"{name}.__init__" in MODULES else home


def is_under(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def forbidden(module: str, tree: ast.AST) -> list[str]:
    """Imports of ours that the table does not allow to a module."""
    allowed = MAY_IMPORT[max((rule for rule in MAY_IMPORT if is_under(module, rule)), key=len)]
    ours = (
        name for name in imports(tree) if name.startswith((".", "tests", "scripts")) or name.split(".")[0] in PACKAGES
    )
    return sorted({name for name in ours if not any(is_under(name, prefix) for prefix in allowed)})


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_layer_may_know(module: str) -> None:
    assert forbidden(module, parse(MODULES[module])) == []


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
        ("opboost.vertical", "from protocols.messages.vertical import Offer", ["protocols.messages.vertical"]),
        (
            "opboost.horizontal.sgbdt.training",
            "from opboost.horizontal import dpboost",
            ["opboost.horizontal.dpboost.training"],
        ),
        ("opboost.errors", "from opboost.arrays import Values", ["opboost.arrays"]),
        ("protocols.transport.codec", "from opboost.arrays import Ranks", ["opboost.arrays"]),
        ("protocols.transport.codec", "from . import channel", ["."]),
        ("parties.jobs.train_vertical", "from opboost import OpBoostClassifier", ["opboost"]),
        ("parties.jobs.train_vertical", "import tests.oracles", ["tests.oracles"]),
        ("parties.jobs.train_vertical", "import numpy\nfrom opboost import rng\nfrom protocols import codec", []),
    ],
)
def test_a_forbidden_import_is_caught_wherever_it_stands(module: str, code: str, found: list[str]) -> None:
    assert forbidden(module, ast.parse(code)) == found


def test_imports_run_downhill_only() -> None:
    def at_import_time(path: Path) -> set[str]:
        runs = [node for node in parse(path).body if not isinstance(node, (ast.If, ast.FunctionDef, ast.ClassDef))]
        return {name for name in imports(ast.Module(runs, [])) if name in MODULES}

    graph = {module: at_import_time(path) for module, path in MODULES.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)


@pytest.mark.parametrize("package", sorted(ONLY_IN))
def test_a_special_dependency_is_imported_only_where_it_belongs(package: str) -> None:
    users = {path.as_posix() for path in FILES if any(is_under(name, package) for name in imports(parse(path)))}
    assert users == ONLY_IN[package]


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


@pytest.mark.parametrize("path", [path for path in ALL_CODE if path != Path("opboost/__init__.py")], ids=str)
def test_no_file_or_message_can_bring_code_along(path: Path) -> None:
    assert runs_foreign_code(parse(path)) == []


@pytest.mark.parametrize(
    "code", ["import pickle", "pd.read_pickle(p)", "np.load(p, allow_pickle=True)", "yaml.load(t)", "eval(x)"]
)
def test_a_way_to_bring_code_along_is_caught(code: str) -> None:
    assert len(runs_foreign_code(ast.parse(code))) == 1


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.parts[:2] == ("opboost", "privacy")] + [Path("opboost/desensitize.py")],
    ids=str,
)
def test_noise_has_no_other_source_than_the_bit_source(path: Path) -> None:
    tree = parse(path)
    assert not [name for name in imports(tree) if name.split(".")[0] in ("random", "secrets") or "random" in name]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "random"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_module_is_at_most_500_lines_long(path: Path) -> None:
    assert len((ROOT / path).read_text().splitlines()) <= 500


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_module_is_named_after_what_it_does(path: Path) -> None:
    assert not {"utils", "util", "common", "base", "manager", "helper", "helpers", "misc"} & set(path.stem.split("_"))


def test_the_top_level_is_as_fixed() -> None:
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()]
    found = {path.name for path in ROOT.iterdir() if not any(fnmatch.fnmatch(path.name, line) for line in ignored)}
    assert found - {".git"} == TOP_LEVEL


def test_tests_are_no_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


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


def test_any_other_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'opboost' has no attribute 'OpBoost'"):
        opboost.OpBoost  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("opboost.OpBoostClassifier")
