"""Parameters of other systems become a model section that a run takes, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from parties.config.model_section import ModelSection
from parties.config.reading import read_section
from parties.errors import ConfigError
from parties.onboarding.other_systems import OtherParameters
from parties.onboarding.project import make_project
from parties.onboarding.schema_draft import Hints

XGBOOST = {"eta": 0.1, "num_boost_round": 50, "lambda": 2, "objective": "binary:logistic", "tree_method": "hist"}
FATE = {"num_trees": 20, "l2": 0.1, "max_bin": 32, "objective": "binary:bce", "num_class": 2, "goss": True}
SGB = {"num_boost_round": 10, "sketch_eps": 0.1, "rowsample_by_tree": 0.9, "objective": "linear", "enable_goss": False}


def read(folder: Path, document: dict[str, Any]) -> OtherParameters:
    (folder / "p.json").write_text(json.dumps(document))
    return OtherParameters.read(folder / "p.json")


@pytest.mark.parametrize(
    ("document", "model", "dropped"),
    [
        (
            XGBOOST,
            {"learning_rate": 0.1, "n_estimators": 50, "reg_lambda": 2, "objective": "binary:logistic"},
            ("tree_method",),
        ),
        (FATE, {"n_estimators": 20, "reg_lambda": 0.1, "max_bin": 32, "objective": "binary:logistic"}, ("goss",)),
        (SGB, {"n_estimators": 10, "max_bin": 10, "subsample": 0.9, "objective": "reg:squarederror"}, ("enable_goss",)),
        (
            {"objective": "multi:softmax", "num_class": 3, "eval_metric": "merror"},
            {"objective": "multi:softprob", "n_classes": 3, "eval_metric": ["merror"]},
            (),
        ),
    ],
    ids=["xgboost", "fate", "secretflow", "classes"],
)
def test_parameters_become_a_section(
    tmp_path: Path, document: dict[str, Any], model: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    found = read(tmp_path, document)
    assert dict(found.model) == model
    assert found.dropped == dropped
    read_section(ModelSection, dict(found.model))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"learning_rat": 0.1}, "did you mean 'learning_rate'"),
        ({"num_trees": 5, "n_estimators": 5, "num_boost_round": 6}, "are names of `n_estimators`: give one of them"),
        ({"num_trees": 5, "n_estimators": 6}, "num_trees, n_estimators are names of `n_estimators`"),
        ({"objective": "rank:nothing"}, "objective"),
        ({"objective": ["binary:bce"]}, "objective"),
        ({"sketch_eps": 3}, "sketch_eps"),
    ],
)
def test_what_no_parameter_means_is_refused(tmp_path: Path, document: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, document)


def test_a_run_file_is_made_of_them(tmp_path: Path) -> None:
    rows = "".join(f"k{row},{row % 7},{row % 2}\n" for row in range(40))
    (tmp_path / "bank.csv").write_text("id,a,y\n" + rows)
    (tmp_path / "shop.csv").write_text("id,b,c\n" + rows)
    hints = Hints(label="y", bounds={"a": (0, 9), "b": (0, 9)})
    make_project(tmp_path / "bank.csv", tmp_path / "shop.csv", tmp_path, hints, read(tmp_path, FATE).model)
    model = yaml.safe_load((tmp_path / "bank" / "run.yaml").read_text())["model"]
    assert model == {"objective": "binary:logistic"} | dict(read(tmp_path, FATE).model)
