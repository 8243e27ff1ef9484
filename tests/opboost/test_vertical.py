"""The active party's steps, with owners that answer their tests by comparing ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import DataError, ParameterError
from opboost.split_tests import PRESENT, ListedTests, bind, feature_matrix, list_tests
from opboost.trees.binning import bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.vertical import Column, OwnColumn, RankColumn, TrainedTrees, train

N_ROWS = 200
SEEDS = st.integers(0, 2**32 - 1)


pytestmark = pytest.mark.usefixtures("one_thread")


def _ranks(rng: np.random.Generator, n_ranks: int, *, missing: float = 0.0) -> np.ndarray:
    """Ranks of which all occur, and so many missing."""
    ranks = np.concatenate([np.arange(n_ranks), rng.integers(0, n_ranks, N_ROWS - n_ranks)])
    is_missing = rng.random(N_ROWS) < missing
    is_missing[:n_ranks] = False
    return np.where(is_missing, n_ranks, ranks).astype(np.uint32)


def _columns(seed: int) -> list[Column]:
    """Own columns and those of two owners side by side, some with gaps."""
    rng = np.random.default_rng(seed)
    gappy = rng.normal(size=N_ROWS).round(1)
    gappy[rng.random(N_ROWS) < 0.2] = np.nan
    return [
        OwnColumn("income", gappy),
        RankColumn("shop", 0, "c0", _ranks(rng, 30), 30),
        RankColumn("bank", 1, "c1", _ranks(rng, 7, missing=0.2), 7),
        RankColumn("shop", 1, "c1", _ranks(rng, 2, missing=0.3), 2),
        OwnColumn("age", rng.integers(18, 90, N_ROWS) * 1.0),
    ]


def _labels(columns: list[Column], loss: Loss, seed: int) -> np.ndarray:
    """Labels that depend on every column's order, and on its gaps as on high or as on low values."""
    signal = np.random.default_rng(seed).normal(size=N_ROWS)
    for column in columns:
        if isinstance(column, OwnColumn):
            signal += np.nan_to_num(column.values, nan=3.0) / 10
        else:
            gap = 1.5 if column.owner == "shop" else -0.5
            signal += 2 * np.where(column.ranks == column.n_ranks, gap, column.ranks / column.n_ranks)
    if isinstance(loss, SquaredError):
        return signal
    shares = np.arange(1, max(2, loss.n_outputs)) / max(2, loss.n_outputs)
    return np.digitize(signal, np.quantile(signal, shares)).astype(np.float64)


def _train(
    columns: list[Column], labels: np.ndarray, loss: Loss, *, seed: int | None = None, **changes: Any
) -> TrainedTrees:
    parameters = BoostingParameters(**{"n_estimators": 5, "max_depth": 4} | changes)
    return train(columns, labels, np.ones(len(labels)), loss=loss, parameters=parameters, seed=seed)


def _answers(columns: list[Column], tests: dict[str, ListedTests]) -> dict[str, np.ndarray]:
    """What every owner answers: whether the rank is at most the asked one, and for gaps what the test says."""
    held = {(c.owner, c.index): c for c in columns if isinstance(c, RankColumn)}
    answers = {}
    for owner, listed in tests.items():
        goes_left = np.empty((N_ROWS, len(listed.ranks)), np.bool_)
        for i, (index, rank, missing_left) in enumerate(
            zip(listed.columns, listed.ranks, listed.missing_left, strict=True)
        ):
            column = held[owner, int(index)]
            goes_left[:, i] = np.where(column.ranks == column.n_ranks, missing_left, column.ranks <= rank)
        answers[owner] = goes_left
    return answers


def _walk_in_bins(trained: TrainedTrees) -> np.ndarray:
    """Scores by walking the unbound trees over the columns' bins."""
    binned = [
        bin_values(c.values, max_bin=256) if isinstance(c, OwnColumn) else bin_ranks(c.ranks, c.n_ranks, max_bin=256)
        for c in trained.columns
    ]
    scores = np.tile(trained.base_scores, (N_ROWS, 1))
    for number, tree in enumerate(trained.trees):
        for row in range(N_ROWS):
            node = 0
            while not tree.is_leaf[node]:
                column = binned[tree.columns[node]]
                bin_ = int(column.bins[row])
                is_missing = bin_ == column.n_value_bins
                goes_left = tree.missing_left[node] if is_missing else bin_ <= tree.thresholds[node]
                node = tree.lefts[node] if goes_left else tree.rights[node]
            scores[row, number % trained.loss.n_outputs] += tree.values[node]
    return scores


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_the_bound_ensemble_scores_as_the_trees_in_bins(loss: Loss, seed: int) -> None:
    columns = _columns(seed)
    trained = _train(columns, _labels(columns, loss, seed), loss)
    tests = list_tests(trained)
    ensemble = bind(trained, tests)
    own = {c.name: c.values for c in columns if isinstance(c, OwnColumn)}
    matrix = feature_matrix(ensemble, own, _answers(columns, tests), N_ROWS)
    np.testing.assert_array_equal(ensemble.scores(matrix), _walk_in_bins(trained))


def test_a_bound_tree_holds_no_rank_and_no_way_for_gaps_of_an_owners_column() -> None:
    columns = _columns(0)
    trained = _train(columns, _labels(columns, SquaredError(), 0), SquaredError())
    ensemble = bind(trained, list_tests(trained))
    is_test = np.array([feature.owner is not None for feature in ensemble.features])
    for tree in ensemble.trees:
        asks = ~tree.is_leaf & is_test[tree.columns]
        assert set(tree.thresholds[asks]) <= {0.5}
        assert not tree.missing_left[asks].any()
    assert any(feature.missing_left for feature in ensemble.features)


def test_one_wrong_answer_is_noticed() -> None:
    columns = _columns(0)
    trained = _train(columns, _labels(columns, SquaredError(), 0), SquaredError())
    tests = list_tests(trained)
    ensemble, answers = bind(trained, tests), _answers(columns, tests)
    used = np.flatnonzero(answers["shop"][0] != answers["shop"][1])[0]
    answers["shop"][:, used] = ~answers["shop"][:, used]
    own = {c.name: c.values for c in columns if isinstance(c, OwnColumn)}
    assert (ensemble.scores(feature_matrix(ensemble, own, answers, N_ROWS)) != _walk_in_bins(trained)).any()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from([4, 256]))
def test_the_top_rank_is_asked_for_only_to_tell_missing_from_present(seed: int, max_bin: int) -> None:
    columns = _columns(seed)
    trained = _train(columns, _labels(columns, SquaredError(), seed), SquaredError(), max_bin=max_bin)
    held = {(c.owner, c.index): c for c in columns if isinstance(c, RankColumn)}
    for owner, listed in list_tests(trained).items():
        for index, rank, missing_left in zip(listed.columns, listed.ranks, listed.missing_left, strict=True):
            column = held[owner, int(index)]
            has_missing = (column.ranks == column.n_ranks).any()
            assert rank < column.n_ranks - 1 or (has_missing and rank == column.n_ranks - 1 and not missing_left)


def test_a_gap_that_decides_the_label_is_asked_for_by_the_top_rank() -> None:
    ranks = _ranks(np.random.default_rng(0), 5, missing=0.4)
    trained = _train([RankColumn("shop", 3, "c3", ranks, 5)], (ranks == 5) * 1.0, SquaredError(), n_estimators=1)
    listed = list_tests(trained)["shop"]
    assert (listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist()) == ([3], [4], [False])


def test_a_gap_in_an_own_column_that_decides_the_label_is_told_from_every_number() -> None:
    values = np.where(np.arange(N_ROWS) % 3 == 0, np.nan, np.arange(N_ROWS) % 5 * 1e300)
    ensemble = bind(_train([OwnColumn("x", values)], np.isnan(values) * 1.0, SquaredError(), n_estimators=1), {})
    assert ensemble.trees[0].thresholds[0] == PRESENT
    low, high, missing = ensemble.predict(np.array([[-PRESENT], [PRESENT], [np.nan]]))
    assert low == high < missing


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_every_test_is_listed_once_in_ascending_order(seed: int) -> None:
    columns = _columns(seed)
    for listed in list_tests(_train(columns, _labels(columns, SquaredError(), seed), SquaredError())).values():
        keys = list(zip(listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist(), strict=True))
        assert keys == sorted(set(keys))


def test_tests_have_the_types_of_the_wire_even_when_there_are_none() -> None:
    columns = _columns(0)
    trained = _train(columns, _labels(columns, SquaredError(), 0), SquaredError(), n_estimators=0)
    tests = list_tests(trained)
    assert list(tests) == ["shop", "bank"]
    for listed in tests.values():
        assert [part.dtype for part in (listed.columns, listed.ranks, listed.missing_left)] == [
            np.uint32,
            np.uint32,
            bool,
        ]
        assert len(listed.ranks) == 0


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(3, 40), st.sampled_from([SquaredError(), Logistic(), Softmax(3)]))
def test_a_column_and_its_ranks_give_the_same_trees(seed: int, max_bin: int, loss: Loss) -> None:
    rng = np.random.default_rng(seed)
    columns: list[Column] = []
    for k, column in enumerate(_columns(seed)):
        if isinstance(column, RankColumn):
            values = np.append(np.sort(rng.normal(size=column.n_ranks)), np.nan)[column.ranks]
            columns += [column, OwnColumn(f"v{k}", values)]
    labels = _labels(columns, loss, seed)
    by_rank, by_value = (_train(columns[start::2], labels, loss, max_bin=max_bin) for start in (0, 1))
    for tree, other in zip(by_rank.trees, by_value.trees, strict=True):
        for part in ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers"):
            assert getattr(tree, part).tobytes() == getattr(other, part).tobytes()


def test_a_tie_between_columns_goes_to_the_earlier_one() -> None:
    ranks = _ranks(np.random.default_rng(0), 9)
    twins = [RankColumn(owner, 0, "c0", ranks, 9) for owner in ("shop", "bank")]
    tests = list_tests(_train(list(twins), ranks * 1.0, SquaredError()))
    assert len(tests["shop"].ranks) > 0
    assert len(tests["bank"].ranks) == 0


def test_own_cuts_lie_midway_between_values() -> None:
    values = np.repeat([1.0, 4.0], N_ROWS // 2)
    ensemble = bind(_train([OwnColumn("x", values)], values, SquaredError(), n_estimators=1), {})
    assert ensemble.trees[0].thresholds[0] == 2.5


@pytest.mark.parametrize("changes", [{"subsample": 0.5}, {"colsample_bytree": 0.5}], ids=str)
def test_sampling_is_repeatable_under_a_seed(changes: dict[str, float]) -> None:
    columns = _columns(0)
    labels = _labels(columns, SquaredError(), 0)
    first, again, other = (_train(columns, labels, SquaredError(), seed=seed, **changes) for seed in (1, 1, 2))
    values = [np.concatenate([tree.values for tree in trained.trees]).tobytes() for trained in (first, again, other)]
    assert values[0] == values[1] != values[2]


def test_rounds_are_reported() -> None:
    reports: list[RoundReport] = []
    train(
        _columns(0),
        np.zeros(N_ROWS),
        np.ones(N_ROWS),
        loss=SquaredError(),
        parameters=BoostingParameters(n_estimators=3),
        on_round=reports.append,
    )
    assert reports == [RoundReport(finished, 3, {}) for finished in (1, 2, 3)]


@pytest.mark.parametrize(("loss", "score"), [(SquaredError(), 0.3), (Logistic(), np.log(0.3 / 0.7)), (Softmax(2), 0.3)])
def test_a_base_score_that_was_given_is_where_training_starts(loss: Loss, score: float) -> None:
    trained = _train(_columns(0), np.arange(N_ROWS) % 2 * 1.0, loss, base_score=0.3)
    np.testing.assert_allclose(trained.base_scores, score, rtol=1e-14)


def test_a_base_score_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ParameterError, match="base_score is a probability"):
        _train(_columns(0), np.zeros(N_ROWS), Logistic(), base_score=1.5)


@pytest.mark.parametrize(("columns", "n_labels"), [([], 5), ([OwnColumn("x", np.empty(0))], 0)])
def test_training_without_columns_or_rows_is_refused(columns: list[Column], n_labels: int) -> None:
    with pytest.raises(DataError, match=f"at least one column and one row; got {len(columns)} and {n_labels}"):
        _train(columns, np.zeros(n_labels), SquaredError())


def test_labels_that_do_not_fit_the_loss_are_refused() -> None:
    with pytest.raises(DataError, match="binary:logistic needs labels 0 and 1"):
        _train(_columns(0), np.arange(N_ROWS) * 1.0, Logistic())


@pytest.mark.parametrize(
    ("own", "owners", "words"),
    [(("age",), ("shop", "bank"), "needs column 'income'"), (("age", "income"), ("shop",), "the answers of 'bank'")],
)
def test_nothing_is_scored_while_a_column_or_an_owner_is_absent(
    own: tuple[str, ...], owners: tuple[str, ...], words: str
) -> None:
    columns = _columns(0)
    trained = _train(columns, _labels(columns, SquaredError(), 0), SquaredError())
    tests = list_tests(trained)
    answers = {owner: answer for owner, answer in _answers(columns, tests).items() if owner in owners}
    with pytest.raises(DataError, match=f"{words}.*No score was computed"):
        feature_matrix(bind(trained, tests), {name: np.zeros(N_ROWS) for name in own}, answers, N_ROWS)
