"""Column sampling: each draw is from the one before, at least one column is left, and whole shares draw nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.trees.constraints import NodeLimits
from opboost.trees.sampling import ColumnSampler, draw_columns


def limits(n_nodes: int, n_columns: int) -> NodeLimits:
    everywhere = np.full(1, np.inf)
    return NodeLimits(
        -everywhere, everywhere, np.ones((n_nodes, n_columns), np.bool_), np.zeros((1, n_columns), np.bool_)
    )


@given(st.integers(1, 20), st.floats(0.01, 1), st.integers(0, 9))
def test_a_share_is_at_least_one_column_and_each_once(n_columns: int, share: float, seed: int) -> None:
    columns = np.arange(100, 100 + n_columns)
    found = draw_columns(columns, share, np.random.default_rng(seed))
    assert len(found) == max(1, round(share * n_columns))
    assert set(found.tolist()) <= set(columns.tolist())
    assert len(set(found.tolist())) == len(found)


def test_a_whole_share_draws_nothing() -> None:
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    columns = np.arange(5)
    assert draw_columns(columns, 1.0, rng) is columns
    assert rng.bit_generator.state == before
    assert ColumnSampler(columns, 1.0, 1.0, rng).by_level == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_columns_of_nodes_are_among_those_of_their_level(seed: int) -> None:
    sampler = ColumnSampler(np.arange(1, 9), 0.5, 0.5, np.random.default_rng(seed))
    found = sampler.sampled(limits(6, 10), 1, 6).allowed
    assert found.sum(axis=1).tolist() == [2] * 6
    assert found.any(axis=0).sum() <= 4
    assert not found[:, [0, 9]].any()
