"""Tests of the size of residuals that is followed through released sums."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.horizontal.recommended.residual_size import ResidualSize, mean_huber, tightening_places

N_LEAVES = 8


def huber(residuals: np.ndarray) -> np.ndarray:
    size = np.abs(residuals)
    return np.where(size < 1, size**2 / 2, size - 0.5)


@pytest.mark.parametrize("deviation", [0.0, 0.05, 0.7, 1.43, 30.0])
def test_the_mean_loss_of_normal_residuals(deviation: float) -> None:
    points = (np.arange(200_000) + 0.5) / 200_000 * 20 - 10
    density = np.exp(-(points**2) / 2)
    assert mean_huber(deviation) == pytest.approx(float(huber(deviation * points) @ density / density.sum()), abs=1e-6)


def followed(n_records: int, std: float, *, bias: bool = True) -> tuple[float, float]:
    """The factor after 60 trees on residuals that depend on ten columns, and the true size of what is left."""
    rng, rate = np.random.default_rng(0), 0.3
    leaves = rng.integers(0, N_LEAVES, (60, n_records))
    leaves[10:] = leaves[np.arange(50) % 10]
    labels = sum(rng.normal(0, 0.3, N_LEAVES)[leaf] for leaf in leaves[:10]) + 0.1 * rng.standard_normal(n_records)
    labels, scores = labels - labels.mean(), np.zeros(n_records)
    size = ResidualSize(n_records, float(labels.std()))
    for leaf in leaves:
        grad = np.bincount(leaf, np.clip(scores - labels, -1, 1), N_LEAVES) + std * rng.standard_normal(N_LEAVES)
        hess, strength = np.bincount(leaf, minlength=N_LEAVES).astype(float), 3 * std
        moves = -rate * grad / (hess + strength)
        added = rate * std**2 * float((1 / (hess + strength)).sum()) if bias else 0.0
        size.learn(moves, grad, hess, std=std, bias=added)
        scores += moves[leaf]
    return size.factor(), float(np.sqrt(np.mean((scores - labels) ** 2)))


@pytest.mark.parametrize("std", [0.0, 20.0, 60.0])
def test_the_bound_follows_the_residuals(std: float) -> None:
    factor, left = followed(20_000, std)
    assert max(1.2 * left, 0.5) <= factor * 1.02
    assert factor <= max(1.5 * left, 0.5) + 0.05


def test_the_noise_in_the_moves_is_no_progress() -> None:
    """Twin: moves that follow their own noise seem to take more off than they do."""
    factor, left = followed(20_000, 600.0)
    assert followed(20_000, 600.0, bias=False)[0] < factor - 0.2
    assert 1.2 * left < factor < 2 * left


def test_what_is_not_known_keeps_the_bound() -> None:
    assert ResidualSize(1000.0, 1.43).factor() == 1.0
    size = ResidualSize(1000.0, 0.2)
    assert size.factor() == 0.5
    size.learn(np.full((1, 2), 0.1), np.zeros((1, 2)), np.zeros((1, 2)), std=5000.0, bias=0.0)
    assert size.factor() == 1.0
    size.rescale(0.5)
    assert ResidualSize(0.0, 0.0).factor() == 0.5


def test_a_bound_is_set_between_trees() -> None:
    assert tightening_places(100) == [10, 30, 60]
    assert all(0 < place < n for n in range(1, 40) for place in tightening_places(n))
