"""Warming up takes any column that a run may have, and touches nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.trees.losses import Logistic, Objective, loss_by_name
from parties.jobs import warm_up
from parties.jobs.warm_up import warm_drawing, warm_training

SCHEMAS = (
    ColumnSchema(name="number", lower=-3, upper=5),
    ColumnSchema(name="gaps", lower=0, upper=1, missing=Missing.CATEGORY),
    ColumnSchema(name="grade", kind=Kind.ORDERED, categories=("low", "middle", "high")),
    ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("north", "south", "east")),
)
SETTINGS = (
    MechanismSettings(),
    MechanismSettings(mechanism="local", theta=10),
    MechanismSettings(mechanism="adj", theta=10, domain_size=100),
)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.mechanism)
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_kind_of_column_can_be_drawn_from(schema: ColumnSchema, settings: MechanismSettings) -> None:
    warm_drawing([ColumnMechanism(schema, settings)])


@pytest.mark.parametrize("objective", get_args(Objective))
def test_a_tree_grows_for_every_objective(objective: str) -> None:
    warm_training(loss_by_name(objective, 3 if objective.startswith(("multi", "ordinal")) else 0))


def test_whether_loops_were_compiled_before_is_seen_in_their_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up.warm_training(Logistic())
    assert warm_up.compiled_before()
    monkeypatch.setattr(warm_up, "divide_nodes", SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path))))
    assert not warm_up.compiled_before()
    (tmp_path / "division.divide_nodes-36.py311.nbi").touch()
    assert warm_up.compiled_before()
