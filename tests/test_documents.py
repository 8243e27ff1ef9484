"""What the documents show works: Python runs, commands parse, YAML is valid, links lead somewhere, names exist."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from pydantic import BaseModel

import opboost
from parties.cli import app
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.onboarding.key_words import keys_of
from parties.tuning.search_space import SearchSpace
from protocols.messages.message import PROTOCOL_VERSION

ROOT = Path(__file__).parent.parent
WRITTEN = [
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not {"_build", "_generated"} & set(path.parts)
]
TEXTS = {path: (ROOT / path).read_text() for path in WRITTEN}
README = TEXTS[Path("README.md")]

MOST_LINES_OF_README = 150
MOST_TERMS = 40


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of a language in all documents, each once, with a name that tells where it stands."""
    found: dict[str, str] = {}
    for path, text in TEXTS.items():
        for place, code in enumerate(re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)):
            found.setdefault(code, f"{path}-{place}")
    return [(name, code) for code, name in found.items()]


def each(language: str) -> pytest.MarkDecorator:
    """A case for every code block of a language."""
    found = blocks(language)
    return pytest.mark.parametrize("code", [code for _, code in found], ids=[name for name, _ in found])


def samples() -> dict[str, Any]:
    """Small tables under the names that the examples use."""
    draw = np.random.default_rng(0)

    def people(n: int) -> tuple[pd.DataFrame, pd.Series]:
        table = pd.DataFrame(
            {
                "age": draw.integers(17, 91, n).astype(float),
                "capital_gain": draw.integers(0, 100_001, n).astype(float),
                "income": draw.normal(30, 9, n).round(1),
                "region": draw.integers(0, 4, n).astype(float),
                "visits": draw.integers(0, 61, n).astype(float),
            }
        )
        return table, (table["age"] / 90 + draw.normal(0, 0.3, n) > 0.6).astype(int)

    def shells(n: int) -> tuple[pd.DataFrame, np.ndarray]:
        table = pd.DataFrame({"length": draw.random(n), "shell_weight": draw.random(n)})
        return table, np.clip(np.round(1 + 25 * table["shell_weight"].to_numpy() + draw.normal(0, 1, n)), 1, 29)

    found: dict[str, Any] = {}
    for part in ("train", "valid", "test"):
        found[f"X_{part}"], found[f"y_{part}"] = people(300)
    found["X"], found["y"] = shells(300)
    found["X_new"], found["y_new"] = shells(50)
    return found


@each("python")
def test_an_example_in_python_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import xgboost" in code:
        pytest.importorskip("xgboost")
    monkeypatch.chdir(tmp_path)
    exec(code, samples())


def shown_commands() -> list[str]:
    """`opboost ...` in shell blocks and in the text, without comments, placeholders and alternatives."""
    lines = [line.split("#")[0].strip() for _, block in blocks("bash") for line in block.splitlines()]
    inline = [command for text in TEXTS.values() for command in re.findall(r"`(opboost [a-z][^`]*)`", text)]
    return sorted({text for text in (*lines, *inline) if text.startswith("opboost ")})


def commands() -> dict[str, Any]:
    found: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    return found


@pytest.mark.parametrize("command", shown_commands())
def test_a_command_that_is_shown_exists_with_its_options(command: str) -> None:
    _, name, *rest = shlex.split(command)
    # A mention in the text may leave out what the command needs.
    commands()[name].make_context(name, rest, resilient_parsing=not rest)


def test_every_command_is_shown() -> None:
    assert set(commands()) <= {command.split()[1] for command in shown_commands()}


@pytest.mark.parametrize("words", [["run.yaml", "--beforehand"], ["run.yaml", "--epsilon", "x"], []])
def test_the_check_of_commands_finds_what_is_wrong(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such option|valid number|valid float|Missing"):
        commands()["report"].make_context("report", words)


ACTIVE = {
    "role": "active",
    "party": "bank",
    "run_id": "q3",
    "data": "d",
    "schema": "s",
    "listen": "tcp://0.0.0.0:1",
    "passive": [{"name": "retailer"}],
}
PASSIVE = {
    "role": "passive",
    "party": "retailer",
    "run_id": "q3",
    "data": "d",
    "schema": "s",
    "connect": "tcp://b:1",
    "active": {"name": "bank"},
}


RUNS: dict[str, type[BaseModel]] = {
    "active": ActiveRun,
    "passive": PassiveRun,
    "coordinator": CoordinatorRun,
    "worker": WorkerRun,
    "owner": OwnerRun,
}


@each("yaml")
def test_an_example_in_yaml_is_valid(code: str, tmp_path: Path) -> None:
    document = yaml.safe_load(code)
    if "columns" in document:
        (tmp_path / "schema.yaml").write_text(code)
        assert read_schema(tmp_path / "schema.yaml")[0].columns
        return
    if "role" in document:
        RUNS[document["role"]].model_validate(document)
        return
    if document.keys() <= SearchSpace.model_fields.keys():
        SearchSpace.model_validate(document)
        return
    fits = {kind: document.keys() & {key for key, _ in keys_of(kind)} for kind in (ActiveRun, PassiveRun)}
    assert set(document) == fits[ActiveRun] | fits[PassiveRun], "an example has a key that no run file knows"
    for kind, base in ((ActiveRun, ACTIVE), (PassiveRun, PASSIVE)):
        kind.model_validate({**base, **{key: document[key] for key in fits[kind]}})


def test_no_code_block_is_left_untested() -> None:
    fences = {path: re.findall(r"^```(\S*).*$", text, flags=re.MULTILINE) for path, text in TEXTS.items()}
    languages = {language for found in fences.values() for language in found[::2]}
    assert languages <= {"bash", "python", "yaml", "text", "{toctree}", "{eval-rst}", "{include}"}
    assert {language for found in fences.values() for language in found[1::2]} == {""}


def test_every_file_and_target_that_is_named_is_there() -> None:
    missing = {
        (path, name)
        for path, text in TEXTS.items()
        for name in re.findall(r"(?:`|python )((?:scripts|data|docs|tests|opboost|parties|protocols)/[\w./-]+)", text)
        if not name.startswith("docs/_build") and not (ROOT / name).exists()
    }
    assert missing == set()
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    shown = {name for text in TEXTS.values() for name in re.findall(r"(?:^|`)make ([\w-]+)", text, flags=re.MULTILINE)}
    assert shown <= set(targets)


def exists(name: str) -> bool:
    """Whether a dotted name is a module of ours or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return "." in name and exists(module) and hasattr(sys.modules[module], attribute)
    return True


def test_every_module_and_function_that_is_named_is_there() -> None:
    pytest.importorskip("dask")
    names = {
        (path, name)
        for path, text in TEXTS.items()
        for name in re.findall(r"`((?:opboost|parties|protocols)(?:\.[a-zA-Z_]\w*)+)`", text)
    }
    assert {(path, name) for path, name in names if not name.endswith(".PACKAGE") and not exists(name)} == set()


def test_every_test_that_is_named_is_there_and_every_promise_has_one() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", "".join(TEXTS.values()))
    assert {(file, name) for file, name in named if f"def {name}(" not in (ROOT / file).read_text()} == set()
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\|.*\|(.*)\|.*\|$", TEXTS[Path("docs/privacy/promises.md")], re.MULTILINE)
    assert len({number for number, _ in rows}) == len(rows) >= 20
    assert [number for number, shown in rows if "::" not in shown] == []


def anchors(text: str) -> set[str]:
    """The headings of a page as they stand in links."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in headings}


def broken_links(path: Path, text: str) -> list[str]:
    """Links and images of a page that lead to no file, or to no heading of a page."""
    found = []
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (ROOT / path).parent / name if name else ROOT / path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


def test_every_link_inside_the_documents_leads_somewhere() -> None:
    assert {path: found for path, text in TEXTS.items() if (found := broken_links(path, text))} == {}


@pytest.mark.parametrize("link", ["docs/nowhere.md", "#nowhere", "docs/index.md#nowhere"])
def test_a_link_that_leads_nowhere_is_caught(link: str) -> None:
    assert broken_links(Path("README.md"), f"[a]({link}) [b](LICENSE) [c](#limits) [d](https://example.org)") == [link]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES_OF_README


def test_the_readme_example_is_that_of_the_tutorial() -> None:
    tutorial = TEXTS[Path("docs/tutorials/python.md")]
    assert re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)[0] in tutorial


@pytest.mark.parametrize("role", sorted(RUNS))
def test_every_key_of_a_run_file_has_a_sentence(role: str) -> None:
    def without(model: type[BaseModel]) -> list[str]:
        return [key for key, field in model.model_fields.items() if not field.description] + [
            f"{key}.{below}"
            for key, field in model.model_fields.items()
            for section in sections_in(field.annotation)
            for below in without(section)
        ]

    assert without(RUNS[role]) == []


def sections_in(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in getattr(kind, "__args__", ()) for model in sections_in(part)]


def test_the_reference_names_every_option_of_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    importlib.import_module("generate_reference").write_pages(tmp_path)
    pages = (tmp_path / "commands.md").read_text().split("## `opboost ")[1:]
    shown = {page.split("`")[0]: set(re.findall(r"^\| `(--[\w-]+)", page, flags=re.MULTILINE)) for page in pages}
    options = {
        name: {one for parameter in command.params for one in parameter.opts if one.startswith("--")}
        for name, command in commands().items()
    }
    assert {name: found - {"--help"} for name, found in options.items()} == shown
    rows = [len(path.read_text().splitlines()) for path in tmp_path.glob("run-*.md")]
    assert min(rows) > 15


def test_the_glossary_is_short() -> None:
    glossary = TEXTS[Path("docs/architecture/glossary.md")]
    assert len(re.findall(r"^\| (?!term )", glossary, flags=re.MULTILINE)) <= MOST_TERMS


def test_the_changelog_names_the_version_of_the_package_and_of_the_wire() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {opboost.__version__}\n" in changelog
    assert f"Wire protocol {PROTOCOL_VERSION}." in changelog
