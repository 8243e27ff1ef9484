"""Compiled gradients against formulas from the textbook, row by row.

A twin computes in doubles, so the exact place of a gradient on the grid is known to 1e-6 of a step: the integer must be
the nearest one, up to that.
"""

from __future__ import annotations

import decimal
import math

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.gradients import (
    MIN_HESS,
    exp,
    pack_logistic_gradients,
    pack_poisson_gradients,
    pack_softmax_gradients,
    pack_squared_gradients,
)
from opboost.trees.kernels.packing import LARGEST_GRAD, LARGEST_HESS, grad_of, hess_of

ROUNDING = 0.5 + 1e-6
SCALES = (2.0**22, 2.0**17)
ROUNDING_OF_REALS, ROUNDING_OF_COUNTS = (*SCALES, False), (*SCALES, True)
SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.usefixtures("one_thread")


@settings(max_examples=400, deadline=None)
@given(st.floats(-700, 700))
@example(-700.0)
@example(700.0)
@example(0.0)
@example(math.log(2) / 2)
@example(-math.log(2) / 2)
def test_the_exponential_function_is_right_to_three_units_in_the_last_place(x: float) -> None:
    with decimal.localcontext(prec=40):
        exact = decimal.Decimal(x).exp()
        assert abs(decimal.Decimal(float(exp(x))) - exact) <= 3 * decimal.Decimal(math.ulp(float(exact)))


def _fields(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = words.ravel().tolist()
    return (
        np.array([grad_of(word) for word in flat]).reshape(words.shape),
        np.array([hess_of(word) for word in flat]).reshape(words.shape),
    )


def _assert_nearest(words: np.ndarray, grads: np.ndarray, hessians: np.ndarray) -> None:
    """Every field is the integer nearest to the exact number on the grid, saturated."""
    found_g, found_h = _fields(words)
    assert (np.abs(found_g - np.clip(grads * SCALES[0], -LARGEST_GRAD, LARGEST_GRAD)) <= ROUNDING).all()
    assert (np.abs(found_h - np.clip(hessians * SCALES[1], 0, LARGEST_HESS)) <= ROUNDING).all()


def _rows(seed: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of every size and weights of up to one."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n_rows) * 10.0 ** rng.integers(-3, 4, n_rows)
    return scores, rng.uniform(0, 1, n_rows)


SIZES = st.integers(1, 70)


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES)
def test_gradients_of_the_cross_entropy_are_probability_less_label(seed: int, n_rows: int) -> None:
    scores, weights = _rows(seed, n_rows)
    labels = np.random.default_rng(seed).integers(0, 2, n_rows) * 1.0
    out = np.empty(n_rows, np.int64)
    pack_logistic_gradients(scores, labels, weights, *ROUNDING_OF_REALS, out)
    shares = np.array([1 / (1 + math.exp(-max(score, -700))) for score in scores])
    _assert_nearest(out, weights * (shares - labels), weights * np.maximum(shares * (1 - shares), MIN_HESS))


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES)
def test_gradients_of_the_squared_error_are_residuals(seed: int, n_rows: int) -> None:
    scores, weights = _rows(seed, n_rows)
    labels = np.random.default_rng(seed).normal(size=n_rows)
    out = np.empty(n_rows, np.int64)
    pack_squared_gradients(scores, labels, weights, *ROUNDING_OF_REALS, out)
    _assert_nearest(out, weights * (scores - labels), weights)


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES, st.sampled_from([0.0, 0.7, 2.0]))
def test_gradients_of_the_poisson_deviance_are_mean_less_count_and_hessians_have_slack(
    seed: int, n_rows: int, slack: float
) -> None:
    scores, weights = _rows(seed, n_rows)
    scores = np.minimum(scores, 5.0)
    labels = np.random.default_rng(seed).poisson(2.0, n_rows) / 8
    out = np.empty(n_rows, np.int64)
    pack_poisson_gradients(scores, labels, weights, slack, *ROUNDING_OF_REALS, out)
    means = np.exp(np.maximum(scores, -700))
    _assert_nearest(out, weights * (means - labels), weights * means * math.exp(slack))


@settings(max_examples=60, deadline=None)
@given(SEEDS, SIZES, st.integers(2, 5))
def test_gradients_of_several_classes_are_shares_less_labels_and_hessians_are_doubled(
    seed: int, n_rows: int, n_classes: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_classes, n_rows)) * 10.0 ** rng.integers(-3, 4, n_rows)
    weights, labels = rng.uniform(0, 1, n_rows), rng.integers(0, n_classes, n_rows) * 1.0
    out = np.empty((n_classes, n_rows), np.int64)
    pack_softmax_gradients(scores, labels, weights, *ROUNDING_OF_REALS, out)
    powers = np.exp(np.maximum(scores - scores.max(axis=0), -700))
    shares = powers / powers.sum(axis=0)
    targets = np.arange(n_classes)[:, None] == labels
    _assert_nearest(out, weights * (shares - targets), weights * np.maximum(2 * shares * (1 - shares), MIN_HESS))


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES)
def test_a_weight_that_is_a_count_repeats_the_rounded_gradient(seed: int, n_rows: int) -> None:
    """The row twice and the row with weight two have the same sum, to the last unit."""
    rng = np.random.default_rng(seed)
    scores, counts = rng.normal(size=(3, n_rows)), rng.integers(0, 17, n_rows) * 1.0
    labels, ones = rng.integers(0, 2, n_rows) * 1.0, np.ones(n_rows)
    for gradients in (
        lambda weights, rounding, out: pack_logistic_gradients(scores[0], labels, weights, *rounding, out[0]),
        lambda weights, rounding, out: pack_squared_gradients(scores[0], labels, weights, *rounding, out[0]),
        lambda weights, rounding, out: pack_poisson_gradients(scores[0] - 1, labels, weights, 0.7, *rounding, out[0]),
        lambda weights, rounding, out: pack_softmax_gradients(scores, labels, weights, *rounding, out),
    ):
        once, counted = np.zeros((2, 3, n_rows), np.int64)
        gradients(ones, ROUNDING_OF_REALS, once)
        gradients(counts, ROUNDING_OF_COUNTS, counted)
        for single, several in zip(_fields(once), _fields(counted), strict=True):
            np.testing.assert_array_equal(several, single * counts.astype(np.int64))


@pytest.mark.parametrize("n_rows", [511, 512, 513, 1500])
def test_classes_of_rows_around_a_threads_share_are_those_of_each_row_alone(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    scores, labels = rng.normal(size=(3, n_rows)), rng.integers(0, 3, n_rows) * 1.0
    together, alone = np.empty((2, 3, n_rows), np.int64)
    pack_softmax_gradients(scores, labels, np.ones(n_rows), *ROUNDING_OF_REALS, together)
    for i in range(n_rows):
        here = slice(i, i + 1)
        out = np.empty((3, 1), np.int64)
        pack_softmax_gradients(np.ascontiguousarray(scores[:, here]), labels[here], np.ones(1), *ROUNDING_OF_REALS, out)
        alone[:, here] = out
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("score", [-1e300, -1e6, -701.0, 701.0, 1e6, 1e300])
def test_scores_that_no_exponential_function_takes_give_gradients_of_the_right_size(score: float) -> None:
    scores, labels, weights = np.full(1, score), np.zeros(1), np.ones(1)
    out = np.empty(1, np.int64)
    pack_logistic_gradients(scores, labels, weights, *ROUNDING_OF_REALS, out)
    assert (grad_of(out[0]), hess_of(out[0])) == ((score > 0) * SCALES[0], 0)
    pack_poisson_gradients(scores, labels, weights, 0.7, *ROUNDING_OF_REALS, out)
    assert (grad_of(out[0]), hess_of(out[0])) == ((score > 0) * LARGEST_GRAD, (score > 0) * LARGEST_HESS)
    pack_squared_gradients(scores, labels, weights, *ROUNDING_OF_REALS, out)
    assert (grad_of(out[0]), hess_of(out[0])) == (np.sign(score) * LARGEST_GRAD, SCALES[1])
    several = np.empty((2, 1), np.int64)
    pack_softmax_gradients(np.array([[score], [0.0]]), labels, weights, *ROUNDING_OF_REALS, several)
    assert grad_of(several[1, 0]) == (score < 0) * SCALES[0]


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread only")
def test_the_number_of_threads_changes_no_gradient(every_thread: None) -> None:
    scores, weights = _rows(0, 5000)
    labels, found = (scores > 0) * 1.0, []
    for n_threads in (1, 2):
        numba.set_num_threads(n_threads)
        out = np.empty(5000, np.int64)
        pack_logistic_gradients(scores, labels, weights, *ROUNDING_OF_REALS, out)
        found.append(out)
    np.testing.assert_array_equal(*found)
