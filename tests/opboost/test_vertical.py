"""The active party's steps, with owners that answer their tests by comparing ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.columns import Column, OwnColumn, RankColumn
from opboost.errors import DataError, ParameterError
from opboost.split_tests import list_tests
from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.validation import Metric, ValidationPlan
from opboost.vertical import train
from tests.support.owned_columns import N_ROWS, labels_of, owned_columns, random_ranks, train_on

SEEDS = st.integers(0, 2**32 - 1)


pytestmark = pytest.mark.usefixtures("one_thread")


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(3, 40), st.sampled_from([SquaredError(), Logistic(), Softmax(3)]))
def test_a_column_and_its_ranks_give_the_same_trees(seed: int, max_bin: int, loss: Loss) -> None:
    rng = np.random.default_rng(seed)
    columns: list[Column] = []
    for k, column in enumerate(owned_columns(seed)):
        if isinstance(column, RankColumn):
            values = np.append(np.sort(rng.normal(size=column.n_ranks)), np.nan)[column.ranks]
            columns += [column, OwnColumn(f"v{k}", values)]
    labels = labels_of(columns, loss, seed)
    by_rank, by_value = (train_on(columns[start::2], labels, loss, max_bin=max_bin) for start in (0, 1))
    for tree, other in zip(by_rank.trees, by_value.trees, strict=True):
        for part in ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers"):
            assert getattr(tree, part).tobytes() == getattr(other, part).tobytes()


def test_a_tie_between_columns_goes_to_the_earlier_one() -> None:
    ranks = random_ranks(np.random.default_rng(0), 9)
    twins = [RankColumn(owner, 0, "c0", ranks, 9) for owner in ("shop", "bank")]
    tests = list_tests(train_on(list(twins), ranks * 1.0, SquaredError()))
    assert len(tests["shop"].ranks) > 0
    assert len(tests["bank"].ranks) == 0


@pytest.mark.parametrize("changes", [{"subsample": 0.5}, {"colsample_bytree": 0.5}], ids=str)
def test_sampling_is_repeatable_under_a_seed(changes: dict[str, float]) -> None:
    columns = owned_columns(0)
    labels = labels_of(columns, SquaredError(), 0)
    first, again, other = (train_on(columns, labels, SquaredError(), seed=seed, **changes) for seed in (1, 1, 2))
    values = [np.concatenate([tree.values for tree in trained.trees]).tobytes() for trained in (first, again, other)]
    assert values[0] == values[1] != values[2]


def test_rounds_are_reported() -> None:
    reports: list[RoundReport] = []
    train(
        owned_columns(0),
        np.zeros(N_ROWS),
        np.ones(N_ROWS),
        loss=SquaredError(),
        parameters=BoostingParameters(n_estimators=3),
        on_round=reports.append,
    )
    assert reports == [RoundReport(finished, 3, {}) for finished in (1, 2, 3)]


@pytest.mark.parametrize(("loss", "score"), [(SquaredError(), 0.3), (Logistic(), np.log(0.3 / 0.7)), (Softmax(2), 0.3)])
def test_a_base_score_that_was_given_is_where_training_starts(loss: Loss, score: float) -> None:
    trained = train_on(owned_columns(0), np.arange(N_ROWS) % 2 * 1.0, loss, base_score=0.3)
    np.testing.assert_allclose(trained.base_scores, score, rtol=1e-14)


def test_a_base_score_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ParameterError, match="base_score is a probability"):
        train_on(owned_columns(0), np.zeros(N_ROWS), Logistic(), base_score=1.5)


@pytest.mark.parametrize(("columns", "n_labels"), [([], 5), ([OwnColumn("x", np.empty(0))], 0)])
def test_training_without_columns_or_rows_is_refused(columns: list[Column], n_labels: int) -> None:
    with pytest.raises(DataError, match=f"at least one column and one row; got {len(columns)} and {n_labels}"):
        train_on(columns, np.zeros(n_labels), SquaredError())


def test_labels_that_do_not_fit_the_loss_are_refused() -> None:
    with pytest.raises(DataError, match="binary:logistic needs labels 0 and 1"):
        train_on(owned_columns(0), np.arange(N_ROWS) * 1.0, Logistic())


@pytest.mark.parametrize("objective", [Logistic(), Softmax(2)], ids=str)
def test_labels_of_rows_that_are_held_out_have_no_part_in_the_balance_of_classes(objective: Loss) -> None:
    columns, is_held_out = owned_columns(0), np.arange(N_ROWS) % 3 == 0
    labels = np.arange(N_ROWS) % 2 * 1.0
    plan = ValidationPlan(is_held_out, (Metric("none", lambda truth, found: 0.0),))
    found = []
    for of_others in (0.0, 1.0):
        parameters = BoostingParameters(n_estimators=2, class_weight="balanced")
        given = np.where(is_held_out, of_others, labels), np.ones(N_ROWS)
        found.append(train(columns, *given, loss=objective, parameters=parameters, validation=plan))
    np.testing.assert_array_equal(found[0].base_scores, found[1].base_scores)
    for tree, other in zip(found[0].trees, found[1].trees, strict=True):
        np.testing.assert_array_equal(tree.values, other.values)


def test_weights_that_are_too_small_or_are_those_of_held_out_rows_alone_are_refused() -> None:
    labels, weights = np.arange(N_ROWS) % 2 * 1.0, (np.arange(N_ROWS) < 3) * 1.0
    plan = ValidationPlan(weights > 0, (Metric("none", lambda truth, found: 0.0),))
    for each, validation in ((weights, plan), (weights * 1e-200, None)):
        with pytest.raises(DataError, match="weights must be 0 or from 1e-100 to"):
            train(
                owned_columns(0),
                labels,
                each,
                loss=Logistic(),
                parameters=BoostingParameters(n_estimators=1),
                validation=validation,
            )
