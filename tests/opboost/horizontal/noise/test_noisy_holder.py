"""Noisy holder: no answer that its account does not cover, and none twice; without noise it is the holder behind it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.noise.noisy_holder import NoisyHolder, gaussian_noise, laplace_noise, laplace_release
from opboost.rng import seeded


class Exact:
    """Answers with the numbers of the nodes."""

    def __init__(self) -> None:
        self.started: list[int] = []

    def start_tree(self, output: int) -> None:
        self.started.append(output)

    def totals(self, nodes: Any) -> Any:
        return np.stack([nodes, nodes], axis=1).astype(np.int64)

    def divide(self, splits: Any) -> None:
        pass

    def finish_tree(self, tree: Any, learning_rate: float = 1.0) -> None:
        pass


class Splits:
    """Node 0 becomes 1 and 2."""

    nodes, rights = np.array([0]), np.array([2])


def holder(n_trees: int = 2, noises: Any = (None, None)) -> NoisyHolder:
    return NoisyHolder(Exact(), noises=noises, n_trees=n_trees, rng=seeded(1))  # type: ignore[arg-type]


def test_a_tree_more_than_the_account_has_is_refused() -> None:
    made = holder()
    made.start_tree(0)
    made.start_tree(0)
    with pytest.raises(AccountError, match="nothing was released"):
        made.start_tree(0)


def test_sums_of_a_tree_are_released_once_and_it_does_not_split_further() -> None:
    made = holder()
    made.start_tree(0)
    np.testing.assert_array_equal(made.totals(np.array([0])), [[0, 0]])
    with pytest.raises(AccountError, match="released before"):
        made.totals(np.array([0]))
    with pytest.raises(AccountError, match="does not split further"):
        made.divide(Splits())  # type: ignore[arg-type]
    made.start_tree(0)
    assert len(made.totals(np.array([0]))) == 1


@pytest.mark.parametrize("nodes", [[1, 1], [0, 1], [0, 2]])
def test_nodes_that_share_a_row_are_refused(nodes: list[int]) -> None:
    made = holder()
    made.start_tree(0)
    made.divide(Splits())  # type: ignore[arg-type]
    with pytest.raises(AccountError, match="without a common row only"):
        made.totals(np.array(nodes))
    assert len(made.totals(np.array([1, 2]))) == 2


def test_histograms_are_never_answered() -> None:
    made = holder()
    made.start_tree(0)
    with pytest.raises(AccountError, match="histograms are not in the account"):
        made.write_histograms(np.array([0]), np.zeros((1, 2, 3), np.int64))


def test_noise_is_added_to_the_column_that_has_it() -> None:
    made, found = holder(50, noises=(gaussian_noise(5.0, 8.0), None)), []
    for _ in range(50):
        made.start_tree(0)
        found.append(made.totals(np.array([0]))[0].tolist())
    assert len({grad for grad, _ in found}) > 20
    assert {hess for _, hess in found} == {0}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.3])
def test_laplace_noise_costs_no_more_than_its_epsilon(epsilon: float) -> None:
    release = laplace_release(0.3, epsilon, 1024.0)
    assert release.l1 == math.floor(0.3 * 1024)
    assert release.l1 / release.scale <= epsilon
    assert laplace_noise(0.3, math.inf, 1024.0) is None
    assert gaussian_noise(0.0, 8.0) is None
