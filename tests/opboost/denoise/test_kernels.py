"""Loops of the latent classes against the same in NumPy; draws depend on the key and the row alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from opboost.denoise.kernels import draw_states, responsibilities, weighted_counts

pytestmark = pytest.mark.usefixtures("one_thread")

N_ROWS, N_CLASSES, SIZES = 700, 3, np.array([4, 6])
OFFSETS = np.array([0, 4])


def states() -> np.ndarray:
    return np.random.default_rng(0).integers(0, SIZES, (N_ROWS, 2)).astype(np.uint8)


def test_responsibilities_are_those_of_bayes_rule() -> None:
    draw = np.random.default_rng(1)
    log_law = np.log(draw.dirichlet(np.ones(10), N_CLASSES).T).astype(np.float32)
    log_weights = np.log(draw.dirichlet(np.ones(N_CLASSES))).astype(np.float32)
    numbers = draw.normal(size=(N_ROWS, 2)).astype(np.float32)
    numbers[::5, 0] = np.nan
    means, precisions, log_norms = draw.random((3, 2, N_CLASSES)).astype(np.float32)
    found = np.empty((N_ROWS, N_CLASSES), np.float32)
    total = responsibilities(states(), OFFSETS, log_law, numbers, log_weights, means, precisions, log_norms, found)
    density = log_norms - precisions * (numbers[:, :, None].astype(float) - means) ** 2
    scores = log_weights + log_law[OFFSETS + states()].astype(float).sum(axis=1) + np.nansum(density, axis=1)
    of_rows = logsumexp(scores, axis=1)
    np.testing.assert_allclose(found, np.exp(scores - of_rows[:, None]), rtol=0, atol=1e-5)
    assert total == pytest.approx(of_rows.sum(), rel=1e-5)


def test_counts_are_sums_of_weights_over_the_rows_of_a_state() -> None:
    weights = np.random.default_rng(2).integers(0, 9, (N_ROWS, N_CLASSES)).astype(np.float32)
    found, expected = np.zeros((10, N_CLASSES)), np.zeros((10, N_CLASSES))
    weighted_counts(states(), OFFSETS, weights, found)
    for number in range(2):
        np.add.at(expected, OFFSETS[number] + states()[:, number], weights)
    assert found.tolist() == expected.tolist()


def drawn(first: int, end: int, *, key: int = 7, n_draws: int = 40) -> np.ndarray:
    """States of two sources whose law, within each of two classes, does not depend on what was released."""
    laws = np.array([[[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], [[0.1, 0.1, 0.8], [1.0, 0.0, 0.0]]])
    reached = laws.cumsum(axis=2).astype(np.float32).ravel()
    weights = np.tile(np.array([0.25, 0.75], np.float32), (end - first, 1))
    released, ones = np.zeros((end - first, 2), np.uint8), np.ones(2, np.int64)
    out = np.empty((n_draws, 2, end - first), np.uint8)
    draw_states(key, first, weights, released, reached, np.array([0, 6]), 3 * ones, ones, out)
    return out


def test_rows_have_the_same_draws_in_any_pieces_and_others_under_another_key() -> None:
    whole = drawn(0, N_ROWS)
    np.testing.assert_array_equal(whole, np.concatenate([drawn(0, 130), drawn(130, N_ROWS)], axis=2))
    assert (drawn(0, N_ROWS, key=8) != whole).any()


def test_states_are_drawn_together_as_often_as_the_classes_say() -> None:
    found = drawn(0, N_ROWS)
    counts = np.zeros((3, 3))
    np.add.at(counts, (found[:, 0].ravel(), found[:, 1].ravel()), 1)
    law = 0.25 * np.outer([0.7, 0.2, 0.1], [0.1, 0.1, 0.8]) + 0.75 * np.outer([0.0, 0.5, 0.5], [1.0, 0.0, 0.0])
    n = 40 * N_ROWS
    assert (np.abs(counts - n * law) <= 6 * np.sqrt(n * law * (1 - law)) + 1e-9).all()
