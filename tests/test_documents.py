"""What the README shows works: its Python runs, its commands parse, its YAML is valid, its files are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
import yaml

from parties.cli import app
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun
from parties.config.vertical import ActiveRun, PassiveRun, read_schema

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def names_of(code: list[str]) -> list[str]:
    return [f"{place}-{text.strip().splitlines()[-1][:30]}" for place, text in enumerate(code)]


def samples() -> dict[str, Any]:
    """Small tables under the names that the examples use."""
    draw = np.random.default_rng(0)

    def people(n: int) -> tuple[pd.DataFrame, pd.Series]:
        table = pd.DataFrame({
            "age": draw.integers(17, 91, n).astype(float),
            "capital_gain": draw.integers(0, 100_001, n).astype(float),
            "income": draw.normal(30, 9, n).round(1),
            "region": draw.integers(0, 4, n).astype(float),
            "visits": draw.integers(0, 61, n).astype(float),
        })  # fmt: skip
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


@pytest.mark.parametrize("code", blocks("python"), ids=names_of(blocks("python")))
def test_an_example_in_python_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import xgboost" in code:
        pytest.importorskip("xgboost")
    monkeypatch.chdir(tmp_path)
    exec(code, samples())


def shown_commands() -> list[str]:
    """`opboost ...` in shell blocks and in the text, without comments, placeholders and alternatives."""
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    inline = re.findall(r"`(opboost [^`]+)`", README)
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
    by_make = {"demo"}
    assert set(commands()) - by_make <= {command.split()[1] for command in shown_commands()}


@pytest.mark.parametrize("words", [["run.yaml", "--beforehand"], ["run.yaml", "--epsilon", "x"], []])
def test_the_check_of_commands_finds_what_is_wrong(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such option|valid number|valid float|Missing"):
        commands()["report"].make_context("report", words)


ACTIVE = {"role": "active", "party": "bank", "run_id": "q3", "data": "d", "schema": "s", "listen": "tcp://0.0.0.0:1",
          "passive": [{"name": "retailer"}]}  # fmt: skip
PASSIVE = {"role": "passive", "party": "retailer", "run_id": "q3", "data": "d", "schema": "s",
           "connect": "tcp://b:1", "active": {"name": "bank"}}  # fmt: skip


RUNS = {"active": ActiveRun, "passive": PassiveRun, "coordinator": CoordinatorRun, "owner": OwnerRun}


@pytest.mark.parametrize("text", blocks("yaml"), ids=names_of(blocks("yaml")))
def test_an_example_in_yaml_is_valid(text: str, tmp_path: Path) -> None:
    document = yaml.safe_load(text)
    if "columns" in document:
        (tmp_path / "schema.yaml").write_text(text)
        assert read_schema(tmp_path / "schema.yaml")[0].columns
        return
    if "role" in document:
        RUNS[document["role"]].model_validate(document)
        return
    fits = {kind: {key for key in document if key in kind.model_fields} for kind in (ActiveRun, PassiveRun)}
    assert set(document) == fits[ActiveRun] | fits[PassiveRun], "an example has a key that no run file knows"
    for kind, base in ((ActiveRun, ACTIVE), (PassiveRun, PASSIVE)):
        kind.model_validate({**base, **{key: document[key] for key in fits[kind]}})


def test_every_file_and_target_that_is_named_is_there() -> None:
    for path in re.findall(r"`((?:scripts|data|opboost|parties|protocols)/[\w./-]+)`", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(((?!http|#)[^)]+)\)", README):
        assert (ROOT / path).exists(), path
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE)) <= set(targets)


def test_every_link_inside_the_page_has_its_heading() -> None:
    headings = {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-")
                for line in re.findall(r"^#+ (.*)$", README, flags=re.MULTILINE)}  # fmt: skip
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= headings
