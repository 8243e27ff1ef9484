"""Ranges of tuned parameters."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from opboost.trees.parameters import BoostingParameters
from parties.errors import ConfigError
from parties.tuning.search_space import SearchSpace, read_space


def test_suggestions_lie_in_their_ranges() -> None:
    space = SearchSpace(max_bin=(16, 64), gamma=(0, 2))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        found = space.suggest(study.ask())
        assert found.keys() == space.ranges.keys()
        assert all(low <= found[name] <= high for name, (low, high) in space.ranges.items())
        BoostingParameters(**found)


def test_the_runs_own_parameters_are_a_trial_where_the_ranges_hold_them() -> None:
    assert SearchSpace().inside(BoostingParameters()) is not None
    assert SearchSpace().inside(BoostingParameters(max_depth=12)) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_depth: [8, 2]", "range from low to high"),
        ("learning_rate: [0, 1]", "of a factor greater than 0"),
        ("subsample: [0.5, 2]", "subsample must be a number"),
        ("max_leaves: [0, 31]", "max_leaves must be a range from at least 2; found 0"),
        ("eta: [0.1, 0.2]", "eta"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_space(path)


def test_a_parameter_is_left_as_it_is_by_null(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("subsample: null\nmax_depth: [3, 3]")
    found = read_space(path).ranges
    assert "subsample" not in found
    assert found["max_depth"] == (3, 3)
