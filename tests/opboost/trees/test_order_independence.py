"""The same trees to the last bit, on however many threads and however the rows are divided among holders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.binning import BinnedTable, bin_categories, bin_values
from opboost.trees.boosting import BoostingParameters, boost
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.holder import LocalHolder, RowHolder, SummedHolders
from opboost.trees.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.tree import Tree

PARTS = ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers")
LOSSES: list[Loss] = [SquaredError(), Logistic(), Softmax(3), Poisson()]
GROWTHS: dict[str, dict[str, Any]] = {
    "levels": {},
    "leaves": {"max_leaves": 9, "max_depth": 0},
    "one-hot": {"max_cat_to_onehot": 20},
    "bounded": {"max_delta_step": 0.2},
    "columns drawn": {"colsample_bytree": 0.5},
    "every row may part": {"min_child_weight": 1e-3, "reg_lambda": 0.0, "max_depth": 8},
}
CONSTRAINTS = {
    "free": ColumnConstraints(),
    "monotone": ColumnConstraints({"c0": 1, "c1": -1}),
    "groups": ColumnConstraints(interactions=[["c0", "c1"], ["c1", "c3"], ["c2"]]),
    "both": ColumnConstraints({"c0": 1}, [["c0", "c3"], ["c0", "c1", "c2"]]),
}


@dataclass
class Problem:
    """Two numbers, a constant column of numbers with gaps, and categories; weights of every size."""

    loss: Loss
    n_rows: int
    seed: int
    growth: dict[str, Any] = field(default_factory=dict)
    constraints: ColumnConstraints = field(default_factory=ColumnConstraints)

    def __post_init__(self) -> None:
        rng, n = np.random.default_rng(self.seed), self.n_rows
        values = np.column_stack(
            [rng.normal(size=n).round(1), rng.integers(0, 400, n), np.zeros(n), rng.integers(0, 12, n)]
        ).astype(np.float64)
        signal = values[:, 0] + values[:, 1] / 200 + (values[:, 3] % 3) + rng.normal(size=n)
        values[rng.random(values.shape) < 0.1] = np.nan
        match self.loss:
            case SquaredError():
                self.labels = signal
            case Poisson():
                self.labels = rng.poisson(np.exp(signal / 4)).astype(np.float64)
            case loss:
                self.labels = np.digitize(signal, [1.0, 2.5][: max(1, loss.n_outputs - 1)]).astype(np.float64)
        self.weights = 10.0 ** rng.uniform(-3, 3, n)
        columns = [bin_values(column, max_bin=256) for column in values[:, :3].T]
        self.table = BinnedTable.of([*columns, bin_categories(values[:, 3], max_bin=256)])
        self.parameters = BoostingParameters(**{"n_estimators": 3, "max_depth": 4} | self.growth)
        self.base_scores = self.loss.initial_scores(self.labels, self.weights)
        self.grid = self.loss.grid(self.labels, self.weights, self.base_scores)

    def holder(self, rows: np.ndarray | slice = slice(None)) -> LocalHolder:
        return LocalHolder(
            self.table.of_rows(rows),
            self.labels[rows],
            self.weights[rows],
            loss=self.loss,
            grid=self.grid,
            initial_scores=self.base_scores,
            rng=np.random.default_rng(0),
        )

    def boost(self, holder: RowHolder | None = None) -> list[Tree]:
        step = self.loss.max_delta_step if self.parameters.max_delta_step is None else self.parameters.max_delta_step
        limits = self.constraints.on(
            ["c0", "c1", "c2", "c3"], are_categorical=[False, False, False, True], max_delta_step=step
        )
        trees, _ = boost(
            holder or self.holder(),
            self.parameters,
            axes=self.table.axes,
            grid=self.grid,
            constraints=limits,
            n_outputs=self.loss.n_outputs,
            rng=np.random.default_rng(self.seed),
            on_round=lambda report: None,
        )
        return trees


def _are_identical(some: list[Tree], others: list[Tree]) -> bool:
    """Equal to the last bit in every array."""
    return len(some) == len(others) and all(
        getattr(tree, part).tobytes() == getattr(other, part).tobytes()
        and tree.left_categories == other.left_categories
        for tree, other in zip(some, others, strict=True)
        for part in PARTS
    )


PROBLEMS = st.builds(
    Problem,
    loss=st.sampled_from(LOSSES),
    n_rows=st.integers(2, 300),
    seed=st.integers(0, 2**32 - 1),
    growth=st.sampled_from(list(GROWTHS.values())),
    constraints=st.sampled_from(list(CONSTRAINTS.values())),
)


@pytest.mark.usefixtures("one_thread")
@settings(max_examples=120, deadline=None)
@given(PROBLEMS, st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_any_division_of_the_rows_among_holders_gives_the_same_trees(
    problem: Problem, n_holders: int, seed: int
) -> None:
    """Holders may be of very different sizes, and some may hold nothing."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_holders, rng.choice([0.2, 1.0, 10.0])))
    owner = rng.choice(n_holders, len(problem.labels), p=shares)
    parts = [problem.holder(rng.permutation(np.flatnonzero(owner == k))) for k in range(n_holders)]
    assert _are_identical(problem.boost(SummedHolders(list(parts))), problem.boost())


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_row_that_changes_its_holder_and_its_label_is_noticed(loss: Loss) -> None:
    problem = Problem(loss, 200, 0)
    expected = problem.boost()
    problem.labels[17] = 1.0 - min(problem.labels[17], 1.0)
    parts = SummedHolders([problem.holder(slice(0, 100)), problem.holder(slice(100, 200))])
    assert not _are_identical(problem.boost(parts), expected)


@pytest.mark.usefixtures("every_thread")
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread only")
@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("growth", ["levels", "leaves", "one-hot", "every row may part"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_any_number_of_threads_gives_the_same_trees(loss: Loss, growth: str, constraints: str) -> None:
    """20,000 rows: several blocks of every loop, in the root and in its children."""
    problem = Problem(loss, 20_000, 3, {"n_estimators": 2, **GROWTHS[growth]}, CONSTRAINTS[constraints])
    grown = []
    for n_threads in (1, 2):
        numba.set_num_threads(n_threads)
        grown.append(problem.boost())
    assert _are_identical(*grown)


@pytest.mark.usefixtures("every_thread")
@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread only")
@pytest.mark.parametrize("n_rows", [size + extra for size in (2**11, 2**13) for extra in (-1, 0, 1)])
def test_threads_and_holders_change_nothing_around_the_sizes_of_blocks(n_rows: int) -> None:
    problem = Problem(Logistic(), n_rows, 5)
    expected = problem.boost()
    numba.set_num_threads(1)
    assert _are_identical(problem.boost(), expected)
    parts = SummedHolders([problem.holder(slice(0, 7)), problem.holder(slice(7, n_rows))])
    assert _are_identical(problem.boost(parts), expected)
