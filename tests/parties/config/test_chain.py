"""Run files of a chain: owners list each other once, of every two one can be reached, and budgets are all looked at."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from opboost.errors import ParameterError
from opboost.schema import ColumnSchema, TableSchema
from parties.config.chain import MAX_OWNERS, ChainSection, OwnerRun

TRAINING: dict[str, Any] = {"recipe": "inprivate", "epsilon": 2.0, "order": ["w0", "w1", "w2"]}
RUN: dict[str, Any] = {
    "role": "owner",
    "party": "w1",
    "run_id": "spring",
    "schema": "schema.yaml",
    "data": "data.csv",
    "listen": "tcp://127.0.0.1:5555",
    "owners": [{"name": "w0"}, {"name": "w2", "connect": "tcp://127.0.0.1:5556"}],
    "training": TRAINING,
}


def test_an_owner_connects_where_it_is_told_and_listens_for_the_others() -> None:
    wiring = OwnerRun(**RUN).wiring
    assert wiring.calls == {"w2": "tcp://127.0.0.1:5556"}
    assert wiring.listen == "tcp://127.0.0.1:5555"
    assert [peer.name for peer in wiring.peers] == ["w0", "w2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"owners": RUN["owners"][:1]}, "must list the others of `training.order`, which are w0, w2; this party is w1"),
        ({"party": "w9"}, "must list the others of `training.order`"),
        ({"listen": None}, "which needs an address to `listen`"),
        ({"training": {**TRAINING, "order": ["w0", "w1", "w1"]}}, "must name every owner once"),
        ({"training": {**TRAINING, "order": ["w1"]}}, "at least 2"),
        ({"training": {**TRAINING, "order": [f"w{i}" for i in range(MAX_OWNERS + 1)]}}, f"at most {MAX_OWNERS}"),
        ({"training": {**TRAINING, "epsilon": 37.0}}, "training.epsilon is 37, which protects nothing"),
        ({"training": {**TRAINING, "objective": "multi:softprob"}}, "several classes need a coordinator"),
        ({"training": {**TRAINING, "inprivate": {"n_rounds": 61}}}, "less than or equal to 60"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OwnerRun(**{**RUN, **change})


@pytest.mark.parametrize(
    ("given", "max_residual"),
    [
        ({}, 1.0),
        ({"objective": "reg:squarederror", "label_bounds": [0, 10]}, 0.3),
        ({"inprivate": {"max_residual": 0.7}}, 0.7),
    ],
)
def test_the_recipe_is_on_the_schemas_grid_with_a_bound_for_its_task(
    given: dict[str, Any], max_residual: float
) -> None:
    schema = TableSchema(columns=(ColumnSchema(name="age", lower=18, upper=90),), id="id", label="y")
    recipe = ChainSection(**{**TRAINING, **given}).recipe_for(schema)
    assert recipe.settings.max_residual == max_residual
    assert recipe.task.names == ("age",)
    assert recipe.epsilon == pytest.approx(2.0)
    assert recipe.epsilon <= 2.0


def test_trees_whose_scores_could_be_infinite_are_refused_before_anybody_is_met() -> None:
    """Another owner's leaves would otherwise end the run of whoever has a record in two of them."""
    schema = TableSchema(columns=(ColumnSchema(name="age", lower=0, upper=1),), label="y")
    with pytest.raises(ParameterError, match="have no finite scores"):
        ChainSection(**TRAINING, inprivate={"learning_rate": 1e308}).recipe_for(schema)
    ChainSection(**TRAINING, inprivate={"learning_rate": 1e307}).recipe_for(schema)
