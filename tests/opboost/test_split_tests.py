"""Split tests of a model: which are asked, in which order, and the model that is bound to their answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.columns import OwnColumn, RankColumn
from opboost.errors import DataError, ParameterError
from opboost.split_tests import PRESENT, EarlierModel, bind, feature_matrix, list_tests
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from tests.support.owned_columns import (
    N_ROWS,
    answers_of,
    labels_of,
    owned_columns,
    random_ranks,
    train_on,
    walk_in_bins,
)

SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_the_bound_ensemble_scores_as_the_trees_in_bins(loss: Loss, seed: int) -> None:
    columns = owned_columns(seed)
    trained = train_on(columns, labels_of(columns, loss, seed), loss)
    tests = list_tests(trained)
    ensemble = bind(trained, tests)
    own = {c.name: c.values for c in columns if isinstance(c, OwnColumn)}
    matrix = feature_matrix(ensemble, own, answers_of(columns, tests), N_ROWS)
    np.testing.assert_array_equal(ensemble.scores(matrix), walk_in_bins(trained))


def test_a_bound_tree_holds_no_rank_and_no_way_for_gaps_of_an_owners_column() -> None:
    columns = owned_columns(0)
    trained = train_on(columns, labels_of(columns, SquaredError(), 0), SquaredError())
    ensemble = bind(trained, list_tests(trained))
    is_test = np.array([feature.owner is not None for feature in ensemble.features])
    for tree in ensemble.trees:
        asks = ~tree.is_leaf & is_test[tree.columns]
        assert set(tree.thresholds[asks]) <= {0.5}
        assert not tree.missing_left[asks].any()
    assert any(feature.missing_left for feature in ensemble.features)


def test_one_wrong_answer_is_noticed() -> None:
    columns = owned_columns(0)
    trained = train_on(columns, labels_of(columns, SquaredError(), 0), SquaredError())
    tests = list_tests(trained)
    ensemble, answers = bind(trained, tests), answers_of(columns, tests)
    used = np.flatnonzero(answers["shop"][0] != answers["shop"][1])[0]
    answers["shop"][:, used] = ~answers["shop"][:, used]
    own = {c.name: c.values for c in columns if isinstance(c, OwnColumn)}
    assert (ensemble.scores(feature_matrix(ensemble, own, answers, N_ROWS)) != walk_in_bins(trained)).any()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from([4, 256]))
def test_the_top_rank_is_asked_for_only_to_tell_missing_from_present(seed: int, max_bin: int) -> None:
    columns = owned_columns(seed)
    trained = train_on(columns, labels_of(columns, SquaredError(), seed), SquaredError(), max_bin=max_bin)
    held = {(c.owner, c.index): c for c in columns if isinstance(c, RankColumn)}
    for owner, listed in list_tests(trained).items():
        for index, rank, missing_left in zip(listed.columns, listed.ranks, listed.missing_left, strict=True):
            column = held[owner, int(index)]
            has_missing = (column.ranks == column.n_ranks).any()
            assert rank < column.n_ranks - 1 or (has_missing and rank == column.n_ranks - 1 and not missing_left)


def test_a_gap_that_decides_the_label_is_asked_for_by_the_top_rank() -> None:
    ranks = random_ranks(np.random.default_rng(0), 5, missing=0.4)
    trained = train_on([RankColumn("shop", 3, "c3", ranks, 5)], (ranks == 5) * 1.0, SquaredError(), n_estimators=1)
    listed = list_tests(trained)["shop"]
    assert (listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist()) == ([3], [4], [False])


def test_a_gap_in_an_own_column_that_decides_the_label_is_told_from_every_number() -> None:
    values = np.where(np.arange(N_ROWS) % 3 == 0, np.nan, np.arange(N_ROWS) % 5 * 1e300)
    ensemble = bind(train_on([OwnColumn("x", values)], np.isnan(values) * 1.0, SquaredError(), n_estimators=1), {})
    assert ensemble.trees[0].thresholds[0] == PRESENT
    low, high, missing = ensemble.predict(np.array([[-PRESENT], [PRESENT], [np.nan]]))
    assert low == high < missing


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_every_test_is_listed_once_in_ascending_order(seed: int) -> None:
    columns = owned_columns(seed)
    for listed in list_tests(train_on(columns, labels_of(columns, SquaredError(), seed), SquaredError())).values():
        keys = list(zip(listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist(), strict=True))
        assert keys == sorted(set(keys))


def test_tests_have_the_types_of_the_wire_even_when_there_are_none() -> None:
    columns = owned_columns(0)
    trained = train_on(columns, labels_of(columns, SquaredError(), 0), SquaredError(), n_estimators=0)
    tests = list_tests(trained)
    assert list(tests) == ["shop", "bank"]
    for listed in tests.values():
        assert [part.dtype for part in (listed.columns, listed.ranks, listed.missing_left)] == [
            np.uint32,
            np.uint32,
            bool,
        ]
        assert len(listed.ranks) == 0


def test_own_cuts_lie_midway_between_values() -> None:
    values = np.repeat([1.0, 4.0], N_ROWS // 2)
    ensemble = bind(train_on([OwnColumn("x", values)], values, SquaredError(), n_estimators=1), {})
    assert ensemble.trees[0].thresholds[0] == 2.5


@pytest.mark.parametrize("cell", [-1.0, 2.0, 255.0, -PRESENT])
def test_trees_on_cells_that_the_grid_does_not_have_are_not_continued(cell: float) -> None:
    ranks = np.arange(N_ROWS, dtype=np.uint8) % 9
    columns, cuts = [RankColumn("shop", 0, "c", ranks, 9, cuts=np.array([2, 5]))], [np.array([2.0, 5.0])]
    model = bind(train_on(columns, (ranks > 2).astype(float), SquaredError(), n_estimators=1), {})
    (tree,), (in_bins,) = model.trees, EarlierModel(model).in_bins(columns, cuts)
    assert tree.thresholds[0] == in_bins.thresholds[0] == 0.0
    other = replace(tree, thresholds=np.where(tree.is_leaf, 0.0, cell))
    with pytest.raises(ParameterError, match="cuts column 'c' where these records have no cut"):
        EarlierModel(replace(model, trees=(other,))).in_bins(columns, cuts)


@pytest.mark.parametrize(
    ("own", "owners", "words"),
    [(("age",), ("shop", "bank"), "needs column 'income'"), (("age", "income"), ("shop",), "the answers of 'bank'")],
)
def test_nothing_is_scored_while_a_column_or_an_owner_is_absent(
    own: tuple[str, ...], owners: tuple[str, ...], words: str
) -> None:
    columns = owned_columns(0)
    trained = train_on(columns, labels_of(columns, SquaredError(), 0), SquaredError())
    tests = list_tests(trained)
    answers = {owner: answer for owner, answer in answers_of(columns, tests).items() if owner in owners}
    with pytest.raises(DataError, match=f"{words}.*No score was computed"):
        feature_matrix(bind(trained, tests), {name: np.zeros(N_ROWS) for name in own}, answers, N_ROWS)
