from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.errors import ParameterError
from opboost.trees.binning import BinnedTable, bin_values
from opboost.trees.boosting import BoostingParameters, RoundReport, boost
from opboost.trees.constraints import Constraints
from opboost.trees.holder import LocalHolder, RowHolder, SummedHolders
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.tree import Tree
from opboost.vertical import train

LOSSES = [SquaredError(), Logistic(), Softmax(3)]
PARTS = ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers")


class Problem:
    """A table with missing cells, labels that fit the loss, weights, and all that a holder needs."""

    def __init__(self, loss: Loss, *, n_rows: int = 500, n_columns: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(n_rows, n_columns)).round(2)
        signal = values @ np.arange(1, n_columns + 1) + rng.normal(size=n_rows)
        values[rng.random(values.shape) < 0.1] = np.nan
        n_classes = {Logistic.name: 2, Softmax.name: 3}.get(loss.name)
        cuts = [] if n_classes is None else np.quantile(signal, np.arange(1, n_classes) / n_classes)
        self.labels = signal if n_classes is None else np.digitize(signal, cuts).astype(np.float64)
        self.weights = rng.uniform(0.5, 2, n_rows)
        self.loss = loss
        self.table = BinnedTable.of([bin_values(column, max_bin=256) for column in values.T])
        self.base_scores = loss.initial_scores(self.labels, self.weights)
        self.grid = loss.grid(self.labels, self.weights, self.base_scores)

    def holder(self, rows: np.ndarray | slice = slice(None), *, subsample: float = 1.0, seed: int = 0) -> LocalHolder:
        table = BinnedTable(np.ascontiguousarray(self.table.bins[:, rows]), self.table.cuts, self.table.axes)
        return LocalHolder(
            table,
            self.labels[rows],
            self.weights[rows],
            loss=self.loss,
            grid=self.grid,
            initial_scores=self.base_scores,
            subsample=subsample,
            rng=np.random.default_rng(seed),
        )

    def boost(
        self,
        holder: RowHolder | None = None,
        *,
        seed: int = 0,
        reports: list[RoundReport] | None = None,
        **settings: Any,
    ) -> list[Tree]:
        parameters = BoostingParameters(**{"n_estimators": 5, "max_depth": 4} | settings)
        trees, history = boost(
            holder or self.holder(subsample=parameters.subsample, seed=seed),
            parameters,
            axes=self.table.axes,
            grid=self.grid,
            constraints=Constraints.none(self.table.axes.n_columns),
            n_outputs=self.loss.n_outputs,
            rng=np.random.default_rng(seed),
            on_round=(reports if reports is not None else []).append,
        )
        assert (history.scores, history.best_round) == ({}, 0)
        return trees


def _are_identical(some: list[Tree], others: list[Tree]) -> bool:
    """Equal to the last bit in every array."""
    return len(some) == len(others) and all(
        getattr(tree, part).tobytes() == getattr(other, part).tobytes()
        for tree, other in zip(some, others, strict=True)
        for part in PARTS
    )


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.usefixtures("every_thread")
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread only")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_number_of_threads_changes_no_bit(loss: Loss) -> None:
    problem, grown = Problem(loss, n_rows=70_000), []
    for n_threads in (1, 2):
        numba.set_num_threads(n_threads)
        grown.append(problem.boost(n_estimators=2))
    assert _are_identical(*grown)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_dividing_the_rows_among_three_holders_changes_no_bit(loss: Loss) -> None:
    """Many draws, of fewer rows, are in `test_order_independence`."""
    problem = Problem(loss)
    owner = np.random.default_rng(0).integers(0, 3, len(problem.labels))
    parts = SummedHolders([problem.holder(np.flatnonzero(owner == k)) for k in range(3)])
    assert _are_identical(problem.boost(parts), problem.boost())


def test_a_holder_without_rows_changes_no_bit() -> None:
    problem = Problem(SquaredError())
    parts = SummedHolders([problem.holder(np.empty(0, np.intp)), problem.holder()])
    assert _are_identical(problem.boost(parts), problem.boost())


def test_one_row_more_is_noticed() -> None:
    problem = Problem(SquaredError())
    parts = SummedHolders([problem.holder(), problem.holder(np.array([7]))])
    assert not _are_identical(problem.boost(parts), problem.boost())


@pytest.mark.parametrize("settings", [{"subsample": 0.5}, {"colsample_bytree": 0.5}], ids=str)
def test_sampling_is_repeatable_under_a_seed_and_differs_between_seeds(settings: dict[str, float]) -> None:
    problem = Problem(SquaredError())
    first = problem.boost(seed=1, **settings)
    assert _are_identical(first, problem.boost(seed=1, **settings))
    assert not _are_identical(first, problem.boost(seed=2, **settings))


@pytest.mark.parametrize(("share", "n_sampled"), [(0.01, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
def test_a_tree_splits_on_its_share_of_the_columns_and_on_one_at_least(share: float, n_sampled: int) -> None:
    trees = Problem(SquaredError()).boost(colsample_bytree=share, n_estimators=20)
    used = [np.unique(tree.columns[~tree.is_leaf]) for tree in trees]
    assert max(map(len, used)) == n_sampled
    assert len(np.unique(np.concatenate(used))) == 4


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_every_round_grows_a_tree_per_output_and_is_reported(loss: Loss) -> None:
    reports: list[RoundReport] = []
    assert len(Problem(loss).boost(n_estimators=3, reports=reports)) == 3 * loss.n_outputs
    assert reports == [RoundReport(finished, 3, {}) for finished in (1, 2, 3)]


def test_no_rounds_give_no_trees() -> None:
    assert Problem(SquaredError()).boost(n_estimators=0) == []


def test_more_rounds_begin_with_the_same_trees() -> None:
    problem = Problem(Softmax(3))
    assert _are_identical(problem.boost(n_estimators=4)[: 2 * 3], problem.boost(n_estimators=2))


def test_the_learning_rate_scales_the_first_tree() -> None:
    problem = Problem(SquaredError())
    slow, fast = (problem.boost(n_estimators=1, learning_rate=rate)[0] for rate in (0.25, 1.0))
    assert _are_identical([slow], [fast.scaled(0.25)])


@pytest.mark.parametrize("max_depth", [1, 2, 3])
def test_no_path_is_longer_than_max_depth(max_depth: int) -> None:
    for tree in Problem(SquaredError()).boost(max_depth=max_depth):
        depth = np.zeros(tree.n_nodes, int)
        for node in np.flatnonzero(~tree.is_leaf):
            depth[[tree.lefts[node], tree.rights[node]]] = depth[node] + 1
        assert depth.max() == max_depth


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("n_estimators", value) for value in (-1, 10**6 + 1, 1.0, True, "5", None)],
        *[("max_depth", value) for value in (-1, 31, 3.0, np.nan)],
        *[("max_leaves", value) for value in (-1, 1, 2**20 + 1, 3.0, True)],
        *[("max_cat_to_onehot", value) for value in (-1, 65536, 4.0)],
        *[("early_stopping_rounds", value) for value in (0, -1, 2.0, True)],
        *[(name, value) for name in ("max_delta_step", "base_score") for value in (np.inf, np.nan, "half")],
        ("max_delta_step", -0.1),
        *[("max_bin", value) for value in (2, 65536, 256.0)],
        *[
            (name, value)
            for name in ("learning_rate", "scale_pos_weight")
            for value in (0, -0.1, np.inf, np.nan, "fast", True)
        ],
        *[(name, value) for name in ("reg_lambda", "gamma", "min_child_weight") for value in (-1e-9, np.inf, np.nan)],
        *[(name, value) for name in ("subsample", "colsample_bytree") for value in (0, -1, 1.001, np.nan)],
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be .*; got "):
        BoostingParameters(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_estimators", 0),
        ("n_estimators", np.int64(7)),
        ("max_depth", 30),
        ("max_bin", 3),
        ("max_bin", 65535),
        ("learning_rate", 1),
        ("learning_rate", np.float32(0.1)),
        ("reg_lambda", 0),
        ("gamma", 0.0),
        ("subsample", 1),
        ("colsample_bytree", 5e-324),
        ("max_leaves", 2),
        ("max_leaves", 0),
        ("max_cat_to_onehot", 0),
        ("early_stopping_rounds", 1),
        ("early_stopping_rounds", None),
        ("max_delta_step", 0),
        ("base_score", -1e300),
    ],
)
def test_a_parameter_at_the_end_of_its_range_is_accepted(name: str, value: Any) -> None:
    assert getattr(BoostingParameters(**{name: value}), name) == value


def test_depth_without_limit_needs_a_limit_of_leaves() -> None:
    with pytest.raises(ParameterError, match=r"max_depth = 0 \(no limit\) needs max_leaves; got neither"):
        BoostingParameters(max_depth=0)
    assert BoostingParameters(max_depth=0, max_leaves=8).max_leaves == 8


def test_rounds_that_no_row_takes_part_in_grow_lone_leaves_also_on_categories() -> None:
    categories = np.arange(20) % 6 * 1.0
    trained = train(
        [OwnColumn("town", categories, is_categorical=True)],
        categories,
        np.ones(20),
        loss=SquaredError(),
        seed=0,
        parameters=BoostingParameters(n_estimators=3, subsample=1e-9, min_child_weight=0.0),
    )
    assert [tree.values.tolist() for tree in trained.trees] == [[0.0]] * 3


def test_rounds_that_no_row_takes_part_in_grow_lone_leaves() -> None:
    trees = Problem(SquaredError()).boost(subsample=1e-12, min_child_weight=0.0)
    assert [tree.values.tolist() for tree in trees] == [[0.0]] * 5
