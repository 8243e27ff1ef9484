"""Reading run files: paths against their folder, any role, and every fault under the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Feature
from parties.config.reader_section import LABEL_TERM
from parties.config.reading import check_schema_of_model, read_any_run, read_role, read_run, read_schema, read_section
from parties.config.serve_section import ServeSection
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError
from parties.runs.model_share import KEPT_SCHEMA
from tests.support.sites import Sites


def write(folder: Path, document: Any) -> Path:
    path = folder / "file.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_either_role_is_read_with_its_paths_resolved(sites: Sites) -> None:
    bank, shop = read_any_run(sites.bank.write()), read_any_run(sites.shop.write())
    assert isinstance(bank, ActiveRun)
    assert isinstance(shop, PassiveRun)
    assert bank.data == sites.bank.path / "data.csv"
    assert shop.active.public_key == sites.shop.path / "keys" / "bank.public"
    with pytest.raises(ConfigError, match=r"run\.yaml is of role active; "):
        read_run(sites.bank.path / "run.yaml", PassiveRun)


@pytest.mark.parametrize(("found", "role"), [("guest", "active"), ("host", "passive"), ("owner", "owner")])
def test_a_role_may_have_another_name(tmp_path: Path, found: str, role: str) -> None:
    assert read_role(write(tmp_path, {"role": found})) == role


@pytest.mark.parametrize("found", [None, 3, "king", ["active"]])
def test_another_role_is_refused(tmp_path: Path, found: object) -> None:
    with pytest.raises(
        ConfigError, match=r"file\.yaml: role must be active or passive, or coordinator, worker or owner"
    ):
        read_role(write(tmp_path, {"role": found}))


def test_a_section_is_refused_by_key() -> None:
    with pytest.raises(ConfigError, match="batch_rows"):
        read_section(ServeSection, {"batch_rows": 0})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": 1}, "unknown keys colour"),
        ({"columns": ["age"]}, "`columns` must map each column's name"),
        ({"ignore": "note"}, "`ignore` must be a list"),
        ({"label": True}, "put words like yes and no in quotes"),
        ({"ignore": ["age"]}, "age stand under `columns` and under `ignore`"),
        ({"ignore": ["key"]}, "key stand under `id` and under `ignore`"),
        ({"ignore": ["y"]}, "y stand under `label` and under `ignore`"),
    ],
)
def test_a_schema_with_a_fault_is_refused_by_file(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    schema = {"id": "key", "label": "y", "columns": {"age": {"lower": 0, "upper": 9}}, "ignore": ["note"]}
    assert read_schema(write(tmp_path, schema))[1] == ("note",)
    with pytest.raises(ConfigError, match=f"file.yaml: .*{words}"):
        read_schema(write(tmp_path, {**schema, **change}))


def test_a_models_columns_are_read_with_the_numbers_that_categories_had_in_training(tmp_path: Path) -> None:
    model = Ensemble((), np.zeros(1), SquaredError(), (Feature("job"), Feature("c0", "shop", rank=3)))

    def check(**job: Any) -> None:
        now = {"columns": {"job": {"kind": "unordered", **job}, "c0": {"lower": 0, "upper": 1}}}
        check_schema_of_model(read_schema(write(tmp_path, now))[0], tmp_path, model)

    # Models of earlier versions have no schema beside them.
    check(categories=["b", "a"])
    known = {"columns": {"job": {"kind": "unordered", "categories": ["a", "b"]}, "age": {"lower": 0, "upper": 9}}}
    (tmp_path / KEPT_SCHEMA).write_text(yaml.safe_dump(known))
    check(categories=["a", "b"], missing="category")
    check(categories=["a", "b", "c"])
    for changed in ({"categories": ["b", "a"]}, {"categories": ["a", "x", "b"]}, {"categories": ["a", "B"]}):
        with pytest.raises(ConfigError, match=r"'job' has another kind, or other categories .* Nothing was sent"):
            check(**changed)
    with pytest.raises(ConfigError, match="'job' has another kind"):
        check(kind="ordered", categories=["a", "b"])


IMPUTED = {"missing": "impute", "fill": 3}
DATE = {"kind": "date", "lower": "2020-01-01", "upper": "2024-01-01"}


@pytest.mark.parametrize(
    ("before", "now", "key"),
    [
        (IMPUTED, {**IMPUTED, "fill": 4}, "`missing` or `fill`"),
        (IMPUTED, {"missing": "category"}, "`missing` or `fill`"),
        ({"missing": "category"}, IMPUTED, "`missing` or `fill`"),
        (DATE, {**DATE, "unit": "hour"}, "`unit`"),
        (DATE, {}, "`unit`"),
        (IMPUTED, {**IMPUTED, "fill": 3.0, "upper": 20}, None),
        # Training met no empty cell, or scored records have none.
        ({}, IMPUTED, None),
        (IMPUTED, {}, None),
        (DATE, {**DATE, "unit": "day"}, None),
    ],
)
def test_a_models_columns_are_read_in_the_way_of_training(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], key: str | None
) -> None:
    model = Ensemble((), np.zeros(1), SquaredError(), (Feature("age"),))
    other = {"note": {"lower": 0, "upper": 9, **({"missing": "category"} if key is None else {})}}
    texts = [yaml.safe_dump({"columns": {"age": {"lower": 0, "upper": 9, **of}}}) for of in (before, now)]
    (tmp_path / KEPT_SCHEMA).write_text(texts[0])
    schema = read_schema(write(tmp_path, {"columns": {**yaml.safe_load(texts[1])["columns"], **other}}))[0]
    if key is None:
        check_schema_of_model(schema, tmp_path, model)
        return
    with pytest.raises(ConfigError, match=f"'age' has another {key} than in .*{KEPT_SCHEMA}.* Nothing was sent"):
        check_schema_of_model(schema, tmp_path, model)


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        ({"positive": "bad"}, {"positive": ["BAD ", "bad"]}, True),
        ({"positive": "bad"}, {"positive": "good"}, False),
        ({"positive": "bad", "negative": "good"}, {"positive": "good", "negative": "bad"}, False),
        ({"positive": "bad"}, {"positive": "bad", "negative": "good"}, False),
        # Of numbers, 1 means 1.
        ({}, {"positive": 0}, False),
        ({"positive": 0}, {}, False),
        ({"positive": True}, {"positive": False}, False),
        ({}, {}, True),
        # Scored records need no label, nor do a coordinator's.
        ({"positive": "bad"}, {"label": None}, True),
        ({"label": None}, {"positive": "bad"}, True),
        # Runs of earlier versions kept no schema.
        (None, {"positive": "bad"}, True),
    ],
)
def test_a_models_labels_mean_what_they_meant_in_training(
    tmp_path: Path, before: dict[str, Any] | None, now: dict[str, Any], is_same: bool
) -> None:
    model = Ensemble((), np.zeros(1), SquaredError(), (Feature("age"),))
    described = {"label": "y", "columns": {"age": {"lower": 0, "upper": 9}}}
    if before is not None:
        (tmp_path / KEPT_SCHEMA).write_text(yaml.safe_dump({**described, **before}))
    schema = read_schema(write(tmp_path, {**described, **now}))[0]
    if is_same:
        check_schema_of_model(schema, tmp_path, model)
        return
    with pytest.raises(ConfigError, match=f"{LABEL_TERM} are .*, and were .* in .*{KEPT_SCHEMA}.* Nothing was sent"):
        check_schema_of_model(schema, tmp_path, model)


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        (["y", "z"], ["y", "z"], True),
        (["y", "z"], ["z", "y"], False),
        ("y", "z", False),
        ("y", ["y", "z"], False),
        ("y", ["y"], True),
        ("y", None, True),
        (None, "y", True),
    ],
)
def test_a_models_labels_are_the_columns_of_training_in_their_order(
    tmp_path: Path, before: Any, now: Any, is_same: bool
) -> None:
    model = Ensemble((), np.zeros(1), SquaredError(), (Feature("age"),))
    described = {"columns": {"age": {"lower": 0, "upper": 9}}}
    (tmp_path / KEPT_SCHEMA).write_text(yaml.safe_dump({**described, "label": before}))
    schema = read_schema(write(tmp_path, {**described, "label": now}))[0]
    if is_same:
        check_schema_of_model(schema, tmp_path, model)
        return
    with pytest.raises(ConfigError, match=f"`label` is .*, and was .* in .*{KEPT_SCHEMA}.* Nothing was sent"):
        check_schema_of_model(schema, tmp_path, model)
