"""Whole runs with weights, base margins and several labels, and runs that continue an earlier one at no cost."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.errors import ParameterError
from opboost.trees.losses import LambdaRank, Several, SquaredError
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, RunFolderError
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.runs.model_share import KEPT_SCHEMA
from parties.runs.run_folder import RunFolder
from parties.vertical.preparation import prepare_active
from protocols.errors import PeerAborted

Outcomes = Callable[..., dict[str, Any]]
SILENT = Terminal()


def train_both(
    sites: Any, outcomes: Outcomes, run_id: str = "spring", *, is_corrected: bool = True, **model: Any
) -> dict[str, Any]:
    sites.bank.run["model"] |= model
    sites.bank.run["correct_noise"] = is_corrected
    for site in (sites.bank, sites.shop):
        site.run["run_id"] = run_id
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )


def charges(sites: Any) -> list[str]:
    """Lines of the passive party's ledger that cost something."""
    database = sqlite3.connect(sites.shop.path / "runs" / "ledger.sqlite")
    rows = database.execute("SELECT fields FROM lines ORDER BY number").fetchall()
    database.close()
    return [fields for (fields,) in rows if '"kind":"charge"' in fields]


def model_of(sites: Any, run_id: str) -> Any:
    return RunFolder(sites.bank.path / "runs" / run_id).load_joint_model()


def test_a_run_continues_an_earlier_one_on_its_release_at_no_cost(sites: Any, outcomes: Outcomes) -> None:
    for site in (sites.bank, sites.shop):
        site.run["held_out"] = 0.2
    train_both(sites, outcomes, "begun", n_estimators=3)
    spent = charges(sites)
    assert spent
    sites.bank.run["continue_from"] = "runs/begun"
    found = train_both(sites, outcomes, "more", n_estimators=2)
    assert not [one for one in found.values() if isinstance(one, Exception)]
    assert charges(sites) == spent
    begun, more = model_of(sites, "begun"), model_of(sites, "more")
    assert more.release == begun.release
    assert more.choice == begun.choice
    assert len(more.ensemble.trees) == 5
    assert more.n_own_trees == begun.n_own_trees == 0
    for ours, before in zip(more.ensemble.trees, begun.ensemble.trees, strict=False):
        np.testing.assert_array_equal(ours.values, before.in_levels().values)
    assert (sites.bank.path / "runs" / "more" / "held_out.json").exists()
    folder = RunFolder(sites.bank.path / "runs" / "begun")
    sites.bank.run |= {"run_id": "third", "folder": "runs/third"}
    for seed in ([1], -1, True):
        folder.write_json("meta.json", {**folder.read_json("meta.json"), "seed": seed})
        with pytest.raises(RunFolderError, match="its seed is no number"):
            train_active(sites.bank.write(), insecure=False, terminal=SILENT)


@pytest.mark.parametrize("answers", ["tests", "cells"])
def test_a_model_on_the_released_codes_is_followed_on_them(sites: Any, outcomes: Outcomes, answers: str) -> None:
    for site in (sites.bank, sites.shop):
        site.run["answers"] = answers
    train_both(sites, outcomes, "begun", is_corrected=False, n_estimators=3)
    sites.bank.run["continue_from"] = "runs/begun"
    found = train_both(sites, outcomes, "more", n_estimators=2)
    assert not [one for one in found.values() if isinstance(one, Exception)]
    begun, more = model_of(sites, "begun"), model_of(sites, "more")
    assert begun.choice is more.choice is None
    assert len(more.ensemble.trees) == 5
    for ours, before in zip(more.ensemble.trees, begun.ensemble.trees, strict=False):
        np.testing.assert_array_equal(ours.values, before.in_levels().values)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"objective": "binary:logistic"},
            "has the objective reg:quantileerror .* this run has binary:logistic with none",
        ),
        ({"quantile_alpha": [0.9]}, "other parameters, of the objective reg:quantileerror than this run"),
    ],
)
def test_another_objective_than_that_of_the_model_to_continue_is_refused_before_a_run_begins(
    sites: Any, outcomes: Outcomes, model: dict[str, Any], words: str
) -> None:
    sites.bank.run["model"] |= {"objective": "reg:quantileerror", "quantile_alpha": [0.5]}
    train_both(sites, outcomes, "begun", n_estimators=1)
    if model.get("objective") == "binary:logistic":
        sites.bank.run["model"].pop("quantile_alpha")
    sites.bank.run["model"] |= model
    sites.bank.run |= {"run_id": "more", "continue_from": "runs/begun"}
    with pytest.raises(ParameterError, match=f"{words}.*Nothing was trained"):
        train_active(sites.bank.write(), insecure=False, terminal=SILENT)
    assert not (sites.bank.path / "runs" / "more").exists()


@pytest.mark.parametrize("now", [{"positive": "no"}, {"positive": "no", "negative": "yes"}], ids=str)
def test_labels_that_mean_the_opposite_are_neither_trained_on_nor_scored(
    sites: Any, outcomes: Outcomes, now: dict[str, str]
) -> None:
    bank = sites.bank
    bank.table["y"] = bank.table["y"].map({0: "no", 1: "yes"})
    bank.schema["positive"] = "Yes"
    sites.shop.run["share_thresholds"] = True
    train_both(sites, outcomes, "begun", is_corrected=False, n_estimators=1)
    trained = bank.schema
    bank.schema = {**trained, **now}
    negative = [now["negative"]] if "negative" in now else []
    words = (
        rf"`positive` and `negative` of the schema are \['no'\] and {re.escape(str(negative))}, and were \['yes'\] and "
        rf"\[\] in .*runs/begun/{KEPT_SCHEMA}, .* Nothing was sent"
    )
    data = bank.path / "whole.csv"
    bank.table.merge(sites.shop.table, on="id").to_csv(data, index=False)

    def predict() -> Path | str:
        return predict_active(
            bank.write(), data=data, ids=None, mode="local", out=None, insecure=False, terminal=SILENT
        )

    with pytest.raises(ConfigError, match=words):
        predict()
    assert not (bank.path / "runs" / "begun" / "predictions.csv").exists()
    bank.run |= {"run_id": "more", "continue_from": "runs/begun"}
    with pytest.raises(ConfigError, match=words):
        train_active(bank.write(), insecure=False, terminal=SILENT)
    assert not (bank.path / "runs" / "more").exists()
    # Labels are compared without regard to case, as they are read.
    bank.schema = {**trained, "positive": "yes"}
    found = train_both(sites, outcomes, "more", is_corrected=False, n_estimators=1)
    assert not [one for one in found.values() if isinstance(one, Exception)]
    assert len(model_of(sites, "more").ensemble.trees) == 2


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"validation_fraction": 0.3}, "is 0.3, and the run to continue had none: its trees have seen rows"),
        ({"validation_fraction": 0.2}, {"validation_fraction": 0.3}, "is 0.3, and the run to continue had 0.2: its"),
        (
            {"validation_fraction": 0.3, "seed": 1},
            {"validation_fraction": 0.3, "seed": 2},
            r"had 0\.3 and another model\.seed: its trees have seen rows",
        ),
        ({}, {"max_bin": 16}, "max_bin is 16, and the run to continue had 256: passive parties' columns would have"),
    ],
)
def test_rows_and_bins_that_do_not_fit_the_earlier_trees_are_refused_before_a_run_begins(
    sites: Any, outcomes: Outcomes, before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    train_both(sites, outcomes, "begun", is_corrected=False, n_estimators=1, **before)
    sites.bank.run["model"] |= after
    sites.bank.run |= {"run_id": "more", "continue_from": "runs/begun"}
    with pytest.raises(ConfigError, match=f"{words}.*Nothing was trained"):
        train_active(sites.bank.write(), insecure=False, terminal=SILENT)
    assert not (sites.bank.path / "runs" / "more").exists()


def test_the_same_rows_validate_the_new_trees(sites: Any, outcomes: Outcomes) -> None:
    train_both(sites, outcomes, "begun", is_corrected=False, n_estimators=2, validation_fraction=0.3)
    sites.bank.run["continue_from"] = "runs/begun"
    found = train_both(sites, outcomes, "more", is_corrected=False, n_estimators=2)
    assert not [one for one in found.values() if isinstance(one, Exception)]
    first, later = (
        json.loads((sites.bank.path / "runs" / run_id / "history.json").read_text())["scores"]["logloss"]
        for run_id in ("begun", "more")
    )
    assert first[0] > first[1] > later[0] > later[1]


@pytest.mark.parametrize("change", [{"correct_noise": False}, {"share_codes": False}], ids=str)
def test_a_model_that_learned_through_the_noise_is_not_followed_on_the_released_codes(
    sites: Any, outcomes: Outcomes, change: dict[str, Any]
) -> None:
    train_both(sites, outcomes, "begun", n_estimators=2)
    assert model_of(sites, "begun").choice is not None
    sites.bank.run["continue_from"] = "runs/begun"
    sites.shop.run |= {key: value for key, value in change.items() if key == "share_codes"}
    found = train_both(sites, outcomes, "more", is_corrected=change.get("correct_noise", True))
    assert isinstance(found["bank"], ParameterError)
    assert "was trained with `correct_noise` on columns whose codes are shared" in str(found["bank"])
    assert isinstance(found["shop"], PeerAborted)


def test_labels_weights_and_margins_come_from_the_data_file(sites: Any, outcomes: Outcomes, tmp_path: Path) -> None:
    bank = sites.bank
    bank.schema = {
        "id": "id",
        "label": ["y", "z"],
        "weight": "w",
        "base_margin": ["m", "n"],
        "columns": bank.schema["columns"],
    }
    draw = np.random.default_rng(0)
    bank.table = bank.table.assign(z=100 * bank.table["age"], w=draw.uniform(1, 2, 400), m=3.0, n=bank.table["age"])
    sites.shop.run["share_thresholds"] = True
    for site in (bank, sites.shop):
        site.run["held_out"] = 0.2
    found = train_both(sites, outcomes, objective="reg:squarederror")
    assert not [one for one in found.values() if isinstance(one, Exception)]
    model = model_of(sites, "spring").ensemble
    assert model.loss == Several(SquaredError(), 2)
    assert [model.features[i].name for i in model.offsets] == ["m", "n"]
    assert model.base_scores.tolist() == [0.0, 0.0]
    whole = bank.table.merge(sites.shop.table, on="id")
    whole.drop(columns=["y", "z", "w"]).to_csv(bank.path / "new.csv", index=False)
    written = predict_active(
        bank.write(), data=bank.path / "new.csv", ids=None, mode="local", out=None, insecure=False, terminal=SILENT
    )
    scores = pd.read_csv(written).merge(whole, on="id")
    before, after = ((scores["z"] - scores[one]).abs().mean() for one in ("n", "prediction_1"))
    assert after < before / 4


def test_records_are_ranked_in_the_groups_of_a_column_of_the_data_file(sites: Any, outcomes: Outcomes) -> None:
    bank = sites.bank
    bank.schema = {"id": "id", "label": "stars", "group": "branch", "columns": bank.schema["columns"]}
    branch = [f"b{i % 40}" for i in range(400)]
    bank.table = bank.table.assign(stars=(bank.table["age"] // 30).astype(int), branch=branch).drop(columns="y")
    bank.run["held_out"] = sites.shop.run["held_out"] = 0.2
    model = {"objective": "rank:ndcg", "validation_fraction": 0.2, "eval_metric": ["map", "ndcg@5"]}
    found = train_both(sites, outcomes, **model)
    assert not [one for one in found.values() if isinstance(one, Exception)]
    assert model_of(sites, "spring").ensemble.loss == LambdaRank()
    assert json.loads((bank.run_folder / "history.json").read_text())["scores"]["ndcg@5"][-1] > 0.9
    assert json.loads((bank.run_folder / "held_out.json").read_text())["metric"] == "ndcg"
    bank.schema.pop("group")
    bank.table = bank.table.drop(columns="branch")
    path = bank.write()
    with pytest.raises(ConfigError, match="need a `group` in the schema; found rank:ndcg and none"):
        prepare_active(read_run(path, ActiveRun), path)


def test_the_model_of_own_columns_has_the_rounds_of_both_runs(sites: Any, outcomes: Outcomes) -> None:
    for site in (sites.bank, sites.shop):
        site.run["held_out"] = 0.4
    train_both(sites, outcomes, "begun", is_corrected=False, n_estimators=20, learning_rate=0.05)
    sites.bank.run["continue_from"] = "runs/begun"
    found = train_both(sites, outcomes, "more", n_estimators=0)
    assert not [one for one in found.values() if isinstance(one, Exception)]
    folders = (sites.bank.path / "runs" / one for one in ("begun", "more"))
    begun, more = (json.loads((folder / "held_out.json").read_text()) for folder in folders)
    assert more["alone"] == begun["alone"]
