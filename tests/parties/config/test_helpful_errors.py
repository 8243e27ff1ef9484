"""Errors in run files and schemas: nearest names, other programs' names, and no phrase of the checking library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from opboost.errors import OpBoostError, nearest
from opboost.metrics import metric_by_name
from opboost.schema import TableSchema, column_from_mapping
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, loss_by_name
from parties.config.desensitize_section import DesensitizeSection
from parties.config.reading import read_schema, read_section
from parties.config.section import Section
from parties.config.vertical import ActiveRun, BudgetSection, PassiveRun
from parties.errors import ConfigError, TableError
from parties.tables.listed_ids import select
from parties.tables.party_table import read_table

ACTIVE: dict[str, Any] = {
    "role": "active",
    "party": "bank",
    "run_id": "q3",
    "data": "d",
    "schema": "s",
    "listen": "tcp://0.0.0.0:1",
    "passive": [{"name": "retailer"}],
}
PASSIVE: dict[str, Any] = {
    "role": "passive",
    "party": "retailer",
    "run_id": "q3",
    "data": "d",
    "schema": "s",
    "connect": "tcp://b:1",
    "active": {"name": "bank"},
}
RUNS: dict[str, tuple[type[Section], dict[str, Any]]] = {
    "active": (ActiveRun, ACTIVE),
    "passive": (PassiveRun, PASSIVE),
}


def told(role: str, **changes: Any) -> str:
    kind, run = RUNS[role]
    with pytest.raises(ConfigError) as caught:
        read_section(kind, {**run, **changes})
    return str(caught.value)


@pytest.mark.parametrize(
    ("role", "changes", "sentence"),
    [
        ("active", {"timout": 3}, "timout: is no key here; did you mean 'timeout'?"),
        ("active", {"model": {"max_dept": 3}}, "model.max_dept: is no key here; did you mean 'max_depth'?"),
        (
            "active",
            {"passive": [{"name": "r", "publickey": "k"}]},
            "passive.0.publickey: is no key here; did you mean 'public_key'?",
        ),
        ("active", {"zzz": 1}, "zzz: is no key here"),
        ("active", {"shema": "s"}, "shema: is no key here; did you mean 'schema'?"),
        (
            "passive",
            {"desensitize": {"mechanism": "globl"}},
            "must be 'global', 'local' or 'adj'; did you mean 'global'?; found 'globl'",
        ),
        (
            "passive",
            {"desensitize": {"columns": {"age": {"epsilom": 1}}}},
            "age.epsilom: is no key here; did you mean 'epsilon'?",
        ),
        ("passive", {"ledger": {"budget": {"columns": {"age": {"epsilom": 1}}}}}, "did you mean 'epsilon'?"),
        ("active", {"model": {"objective": "binary:logitsic"}}, "did you mean 'binary:logistic'"),
        ("active", {"passive": []}, "passive: must have at least 1 entries; found []"),
        ("active", {"reveal": {"bins": "many"}}, "reveal.bins: must be a whole number or must be a list; found 'many'"),
        ("active", {"party": "a b", "run_id": 3}, "party: must be a name: letters, digits"),
    ],
)
def test_what_is_wrong_in_a_run_file_is_told_with_what_was_probably_meant(
    role: str, changes: dict[str, Any], sentence: str
) -> None:
    assert sentence in told(role, **changes)


WRONG: tuple[object, ...] = (
    None,
    "text",
    -1,
    2.5,
    [],
    [1],
    {},
    {"a": 1},
    True,
    float("inf"),
    "x" * 70,
    [[]],
    {"a": []},
)
LIBRARY = re.compile(
    r"(?i)input|a valid|pydantic|extra_|constrained|function-|parsable|unable to|dictionary|tuple|Undefined|NoneType"
)


def keys(kind: type[Section], place: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, field in kind.model_fields.items():
        here = (*place, field.alias or name)
        found.append(here)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += keys(field.annotation, here)
    return found


@pytest.mark.parametrize("role", RUNS)
def test_no_phrase_of_the_checking_library_reaches_a_user(role: str) -> None:
    """Every key with every kind of wrong value."""
    kind, run = RUNS[role]
    n_refused = 0
    for place in keys(kind):
        for wrong in WRONG:
            value = wrong
            for key in reversed(place[1:]):
                value = {key: value}
            try:
                read_section(kind, {**run, place[0]: value})
            except ConfigError as error:
                n_refused += 1
                sentence = re.sub(r"found .*?(?= \||$)", "", str(error))
                assert not LIBRARY.search(sentence), sentence
    assert n_refused > 300


def test_a_phrase_of_the_checking_library_would_be_found() -> None:
    assert LIBRARY.search("model.max_depth: Input should be a valid integer")
    assert LIBRARY.search("reveal.bins.constrained-int: must be a number")


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"eta": 0.1}, "learning_rate", 0.1),
        ({"num_boost_round": 7}, "n_estimators", 7),
        ({"lambda": 2}, "reg_lambda", 2),
        ({"alpha": 2}, "reg_alpha", 2),
        ({"seed": 3}, "seed", 3),
        ({"n_jobs": 2}, "n_jobs", 2),
        ({"nthread": 2}, "n_jobs", 2),
        ({"random_state": 3}, "seed", 3),
    ],
)
def test_names_of_xgboost_are_taken(given: dict[str, float], key: str, value: float) -> None:
    model = read_section(ActiveRun, {**ACTIVE, "model": given}).model
    assert getattr(model, key) == value
    assert key not in model.left_open


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"eta": 0.1, "learning_rate": 0.1},
            "model: `eta` and `learning_rate` are names of `learning_rate`: give one of them",
        ),
        ({"num_round": 1, "num_boost_round": 2}, "`num_round` and `num_boost_round` are names of `n_estimators`"),
        ({"verbose": 1}, "model: `verbose` is no key: a command is silent"),
        ({"tree_method": "hist"}, "`tree_method` is no key: trees grow from histograms"),
        ({"eta": "fast"}, "model.learning_rate: must be a number; found 'fast'"),
    ],
)
def test_names_of_xgboost_that_mean_nothing_here_are_explained(given: dict[str, Any], words: str) -> None:
    assert words in told("active", model=given)


SCHEMA: dict[str, Any] = {
    "label": "y",
    "columns": {"age": {"lower": 0, "upper": 120}, "town": {"kind": "unordered", "categories": ["Bern", "Genf"]}},
}


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("colums",), {}, "unknown keys colums; allowed are .*; did you mean 'columns'\\?"),
        (("columns", "age", "uper"), 1, "unknown keys uper; .*; did you mean 'upper'\\?"),
        (("columns", "age", "kind"), "numerical", "allowed are .*; did you mean 'numeric'\\?"),
        (("columns", "age", "missing"), "refused", "did you mean 'refuse'\\?"),
        (("columns", "age", "lower"), "TODO", "columns age have a TODO where a public bound"),
        (("columns", "town", "missing"), "impute", "go together"),
        (("reader",), {"seperator": ";"}, "reader.seperator: is no key here"),
        (("reader",), {"sep": "ab"}, "must be one character"),
        (("reader",), {"decimal": ",", "thousands": ","}, "`decimal` and `thousands` must differ"),
        (("reader",), {"decimal": "TODO: . or ,"}, "`reader` has a TODO under decimal: write down the marks"),
        (("reader",), {"encoding": "klingon"}, "must be an encoding of text"),
        (("reader",), {"na_values": [False]}, "put words like yes, no and null in quotes"),
        (("reader",), ["sep"], "reader: must hold keys and values"),
        (("negative",), "b", "`negative` goes with `positive`"),
        (("missing_label",), "drp", "must be 'refuse' or 'drop'; did you mean 'drop'\\?"),
        (("columns", "age", "unit"), "day", "unknown keys unit"),
        (("columns", "since"), {"kind": "date", "lower": 3, "upper": 4}, "lower must be a date such as 2024-05-31"),
        (("columns", "since"), {"kind": "date", "unit": "week"}, "unit must be one of day, hour, minute, second"),
        (("columns", "since"), {"kind": "date", "format": "DD.MM"}, "format must be a pattern"),
        (("columns", "since"), {"kind": "date", "format": "%Y-%Q"}, "format must be a pattern"),
        (("columns", "since"), {"kind": "date", "format": "%Y-%Y"}, "format must be a pattern"),
        (("columns", "paid"), {"kind": "boolean", "categories": ["a", "b"]}, "leave them out"),
        (
            ("columns", "size"),
            {"kind": "ordered", "categories": ["s", "m"], "other": True},
            "list `other` at its place",
        ),
    ],
)
def test_what_is_wrong_in_a_schema_is_told(tmp_path: Path, place: tuple[str, ...], value: object, words: str) -> None:
    document = yaml.safe_load(yaml.safe_dump(SCHEMA))
    at = document
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=words):
        read_schema(tmp_path / "schema.yaml")


def test_categories_that_cleaning_makes_the_same_are_refused(tmp_path: Path) -> None:
    columns = {"town": {"kind": "unordered", "categories": ["Bern", "BERN"]}}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": columns, "reader": {"ignore_case": True}}))
    with pytest.raises(ConfigError, match="lists categories that `strip` or `ignore_case` make the same"):
        read_schema(tmp_path / "schema.yaml")


@pytest.mark.parametrize(
    ("listed", "empty", "words"),
    [
        ({"categories": ["some", "none"]}, ["none"], "'none' is listed as a category or a label, and means an empty"),
        ({"categories": ["1", "99.0"]}, [99], "'99.0' is listed"),
        ({"categories": ["1", "2"], "other": True}, ["2.0"], "'2' is listed"),
        ({"categories": ["1", "2"], "other": True}, ["other", "n/a"], None),
        ({"categories": ["1", "2"], "positive": ["won", "lost"]}, ["lost"], "'lost' is listed"),
        ({"categories": ["1", "2"], "positive": True, "negative": False}, [0, 9], None),
    ],
)
def test_what_is_listed_and_means_an_empty_cell_is_refused(
    tmp_path: Path, listed: dict[str, object], empty: list[object], words: str | None
) -> None:
    """Cells with such a category were empty, and read as `fill`, in silence."""
    town = {
        "kind": "unordered",
        "missing": "category",
        **{k: listed[k] for k in ("categories", "other") if k in listed},
    }
    labels = {key: listed[key] for key in ("positive", "negative") if key in listed}
    document = {"columns": {"town": town}, "label": "y", "reader": {"na_values": empty}, **labels}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(document))
    if words is None:
        read_schema(tmp_path / "schema.yaml")
        return
    with pytest.raises(ConfigError, match=words):
        read_schema(tmp_path / "schema.yaml")


AGE = TableSchema(columns=(column_from_mapping("age", {"lower": 0, "upper": 120}),), label="churned")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: DesensitizeSection(columns={"agee": {"epsilon": 1}}).mechanisms(AGE), "did you mean 'age'\\?"),
        (lambda: BudgetSection(columns={"aeg": {"epsilon": 1}}).budget(AGE), "did you mean 'age'\\?"),
        (lambda: metric_by_name("acu", Logistic()), "use .*; did you mean 'auc'"),
        (lambda: loss_by_name("binary:logistics"), "did you mean 'binary:logistic'"),
        (
            lambda: ColumnConstraints({"agee": 1}, ()).on(["age"], are_categorical=[False], max_delta_step=0),
            "do not exist: agee; did you mean 'age'\\?",
        ),
        (
            lambda: column_from_mapping(
                "t", {"kind": "ordered", "categories": ["low", "high"], "missing": "impute", "fill": "hgh"}
            ),
            "did you mean 'high'\\?",
        ),
    ],
)
def test_the_nearest_names_are_told_wherever_one_is_unknown(call: Any, words: str) -> None:
    with pytest.raises((ConfigError, OpBoostError), match=words):
        call()


def test_nothing_is_proposed_where_nothing_is_near() -> None:
    assert nearest("zzz", ["age", "income"]) == ""
    assert nearest(["AGE", "zz"], ["age", "income"]) == "; did you mean 'age'?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,agee,churned\na,1,0\n", "lacks columns of the schema: age; did you mean 'agee'\\?"),
        (
            "id,age,Churned\na,1,0\n",
            "no label column 'churned'; its columns are id, age, Churned; did you mean 'Churned'",
        ),
        ("Id,age,churned\na,1,0\n", "no id column 'id'; .*; did you mean 'Id'"),
        ("id;age;churned\na;1;0\n", "the separator looks like ';'; say `reader: {sep: ';'}` in the schema"),
        ("id\tage\tchurned\na\t1\t0\n", "the separator looks like 'tab'"),
        ("id,age,churned\na,1,0\nb,2\nc\n", "2 rows with fewer cells than its header names columns: lines 3, 4"),
        ("id,age,churned\na,1,0\nb,2,3,4\n", "a row has too many cells, or a quote is not closed in or after line 3"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_the_cure(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(TableError, match=words):
        read_table(tmp_path / "data.csv", AGE, needs_label=True)


@pytest.mark.parametrize(
    ("lines", "is_asked"), [("id\na\nb\n", True), ("a\nid\nb\n", False), ("x\ny\na\n", False), ("zz\n", True)]
)
def test_a_header_of_a_list_of_ids_is_pointed_at(tmp_path: Path, lines: str, is_asked: bool) -> None:
    (tmp_path / "data.csv").write_text("id,age,churned\na,1,0\nb,2,1\nc,3,0\n")
    (tmp_path / "ids.txt").write_text(lines)
    table = read_table(tmp_path / "data.csv", AGE, needs_label=True)
    with pytest.raises(TableError) as caught:
        select(table, tmp_path / "ids.txt", tmp_path / "data.csv")
    assert ("the one in its first line: is that a header?" in str(caught.value)) is is_asked
