"""Trees that are grown in one call against those that a grower asks for level by level."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.binning import BinnedTable, bin_values
from opboost.trees.constraints import Constraints
from opboost.trees.grower import HistogramRoom, grow_tree
from opboost.trees.holder import ForwardingHolder, LocalHolder, RowHolder
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import GradientGrid, Logistic, SquaredError
from opboost.trees.sampling import ColumnSampler
from opboost.trees.splitting import GreedySplitter
from opboost.trees.tree import Tree


def _grown(holder: RowHolder, splitter: GreedySplitter, columns: np.ndarray, max_depth: int) -> Tree:
    holder.start_tree(0)
    return grow_tree(
        holder,
        splitter=splitter,
        leaves=NewtonLeaves(splitter.grid, splitter.reg_lambda, splitter.min_child_weight),
        learning_rate=0.5,
        max_depth=max_depth,
        max_leaves=0,
        limits=splitter.constraints.at_root(columns),
        room=HistogramRoom(splitter.axes.n_bins),
        columns=ColumnSampler(columns, 1.0, 1.0, np.random.default_rng(0)),
    )


def _two_rounds(
    table: BinnedTable,
    labels: np.ndarray,
    weights: np.ndarray,
    grid: GradientGrid,
    loss: Logistic | SquaredError,
    splitter: GreedySplitter,
    columns: np.ndarray,
    max_depth: int,
    *,
    is_at_once: bool,
) -> tuple[list[Tree], np.ndarray]:
    """Trees of two rounds, of which the second starts at the first one's scores, and the sums of all nodes."""
    first = loss.initial_scores(labels, weights)
    rng = np.random.default_rng(0)
    holder = LocalHolder(table, labels, weights, loss=loss, grid=grid, initial_scores=first, rng=rng)
    trees = []
    for _ in range(2):
        trees.append(_grown(holder if is_at_once else ForwardingHolder(holder), splitter, columns, max_depth))
        holder.finish_tree(trees[-1])
    return trees, holder.totals(np.arange(trees[-1].n_nodes, dtype=np.int32))


@pytest.mark.usefixtures("every_thread")
@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 400),
    st.sampled_from([4, 9]),
    st.sampled_from([2, 5, 40]),
    st.integers(0, 7),
    st.sampled_from([0.0, 0.5, 5.0]),
    st.sampled_from([0.0, 1.0, 20.0]),
    st.sampled_from([0.0, 0.1]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_a_tree_that_is_grown_at_once_is_the_one_that_grows_level_by_level(
    n_rows: int,
    n_columns: int,
    n_values: int,
    max_depth: int,
    gamma: float,
    min_child_weight: float,
    max_delta_step: float,
    is_binary: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, n_values, (n_columns, n_rows)).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    table = BinnedTable.of([bin_values(column, max_bin=256) for column in values])
    labels, weights = rng.integers(0, 2, n_rows).astype(float), rng.integers(1, 4, n_rows) * rng.choice([1.0, 0.3])
    loss = Logistic() if is_binary else SquaredError()
    grid = loss.grid(labels, weights, loss.initial_scores(labels, weights))
    none = Constraints.none(n_columns)
    constraints = Constraints(none.monotone, none.groups, max_delta_step)
    splitter = GreedySplitter(table.axes, grid, constraints, 1.0, gamma, min_child_weight, 4)
    problem = table, labels, weights, grid, loss, splitter, rng.permutation(n_columns)[: rng.integers(1, 5)], max_depth
    (trees, totals), (others, other_totals) = (_two_rounds(*problem, is_at_once=each) for each in (True, False))
    for tree, other in zip(trees, others, strict=True):
        for field in fields(Tree):
            np.testing.assert_array_equal(getattr(tree, field.name), getattr(other, field.name))
    np.testing.assert_array_equal(totals, other_totals)
