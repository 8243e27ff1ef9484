from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.packing import GRAD_BITS, HESS_BITS, grad_of, hess_of
from opboost.trees.kernels.pieces import STRIDE
from opboost.trees.losses import GradientGrid, Logistic, Loss, Objective, Poisson, Softmax, SquaredError, loss_by_name

LOSSES = [Logistic(), SquaredError(), Softmax(3), Poisson()]
N_ROWS = 50

pytestmark = pytest.mark.usefixtures("one_thread")


def _problem(loss: Loss, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and weights that fit a loss."""
    rng = np.random.default_rng(seed)
    n_classes = {"binary:logistic": 2, "multi:softprob": 3}.get(loss.name)
    labels = rng.normal(size=N_ROWS) if n_classes is None else rng.integers(0, n_classes, N_ROWS).astype(np.float64)
    if isinstance(loss, Poisson):
        labels = rng.poisson(3.0, N_ROWS) * 1.0
    return rng.normal(size=(loss.n_outputs, N_ROWS)), labels, rng.uniform(0.1, 5, N_ROWS)


def _value(loss: Loss, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted loss of every row, from the textbook."""
    match loss:
        case Logistic():
            return weights * (np.logaddexp(0, scores[0]) - labels * scores[0])
        case SquaredError():
            return weights * (scores[0] - labels) ** 2 / 2
        case Poisson():
            return weights * (np.exp(scores[0]) - labels * scores[0])
        case _:
            log_p = scores - np.log(np.exp(scores).sum(axis=0))
            return -weights * log_p[labels.astype(int), np.arange(len(labels))]


def _on_grid(
    loss: Loss, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, grid: GradientGrid
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients and Hessians as integers."""
    out = np.empty(scores.shape, np.int64)
    loss.gradients(scores, labels, weights, grid, out=out)
    grads, hessians = ([part(word) for word in out.ravel().tolist()] for part in (grad_of, hess_of))
    return np.reshape(grads, scores.shape), np.reshape(hessians, scores.shape)


def _grid(loss: Loss, labels: np.ndarray, weights: np.ndarray) -> GradientGrid:
    return loss.grid(labels, weights, loss.initial_scores(labels, weights))


def _on_reals(loss: Loss, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    grid = _grid(loss, labels, weights)
    grads, hessians = _on_grid(loss, scores, labels, weights, grid)
    return grads / grid.grad_scale, hessians / grid.hess_scale


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradients_are_the_slopes_of_the_loss(loss: Loss) -> None:
    """Central differences of step 1e-5 are good to 1e-8; a gradient to half a step of its grid."""
    scores, labels, weights = _problem(loss, seed=0)
    grad, _ = _on_reals(loss, scores, labels, weights)
    for output in range(loss.n_outputs):
        step = np.zeros_like(scores)
        step[output] = 1e-5
        up, down = _value(loss, scores + step, labels, weights), _value(loss, scores - step, labels, weights)
        tolerance = 0.5 / _grid(loss, labels, weights).grad_scale + 1e-7
        np.testing.assert_allclose(grad[output], (up - down) / 2e-5, rtol=0, atol=tolerance)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_hessians_are_the_curvatures_of_the_loss_doubled_for_softmax_and_with_slack_for_counts(loss: Loss) -> None:
    """To half a step of their grid."""
    scores, labels, weights = _problem(loss, seed=1)
    _, hess = _on_reals(loss, scores, labels, weights)
    shares = expit(scores) if isinstance(loss, Logistic) else softmax(scores, axis=0)
    factor = {"binary:logistic": 1.0, "multi:softprob": 2.0}.get(loss.name)
    expected = weights if factor is None else factor * weights * shares * (1 - shares)
    if isinstance(loss, Poisson):
        expected = weights * np.exp(scores + 0.7)
    tolerance = 0.5 / _grid(loss, labels, weights).hess_scale + 1e-12
    np.testing.assert_allclose(hess, np.broadcast_to(expected, scores.shape), rtol=0, atol=tolerance)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_first_score_is_the_best_constant(loss: Loss) -> None:
    _, labels, weights = _problem(loss, seed=2)
    best = np.repeat(loss.initial_scores(labels, weights)[:, None], N_ROWS, axis=1)
    for output in range(loss.n_outputs):
        for step in (-0.01, 0.01):
            moved = best.copy()
            moved[output] += step
            assert _value(loss, moved, labels, weights).sum() > _value(loss, best, labels, weights).sum()


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_a_class_that_never_occurs_starts_at_a_finite_score(loss: Loss) -> None:
    assert np.isfinite(loss.initial_scores(np.ones(4), np.ones(4))).all()


@pytest.mark.parametrize("score", [-1e6, -800.0, 0.0, 800.0, 1e6])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_extreme_scores_give_gradients_of_the_right_sign(loss: Loss, score: float) -> None:
    labels, weights = np.array([0.0, 1.0]), np.ones(2)
    scores = np.zeros((loss.n_outputs, 2))
    scores[-1] = score
    grad, hess = _on_reals(loss, scores, labels, weights)
    assert np.isfinite(grad).all()
    assert (hess >= 0).all()
    assert (np.sign(grad[-1, 0]) in (0, np.sign(score))) or score == 0.0


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-200, 1e200), st.floats(1e-200, 1e200))
def test_a_grid_is_the_finest_power_of_two_that_holds_the_bounds_in_22_and_17_bits(grad: float, hess: float) -> None:
    """Half of what the fields hold: gradients may double before they saturate."""
    grid = GradientGrid.for_bounds(grad, hess)
    for bound, scale, n_bits in ((grad, grid.grad_scale, 22), (hess, grid.hess_scale, 17)):
        assert math.frexp(scale)[0] == 0.5
        assert 2 ** (n_bits - 1) < bound * scale <= 2**n_bits
    assert (GRAD_BITS, HESS_BITS) == (23, 18)


@pytest.mark.parametrize(
    ("weights", "are_counts"),
    [
        ([1.0, 2.0], True),
        ([3.0, 0.0], True),
        ([16.0, 1.0], True),
        ([1.0, 1.0], False),
        ([1.0, 17.0], False),
        ([1.5, 2.0], False),
        ([0.5, 1.0], False),
    ],
)
def test_weights_that_are_small_integers_are_counts(weights: list[float], are_counts: bool) -> None:
    """They leave the step as it is; other weights make it larger."""
    grid, plain = GradientGrid.for_weights(0.7, 0.3, np.array(weights)), GradientGrid.for_bounds(0.7, 0.3)
    assert grid.weights_are_counts == are_counts
    if are_counts:
        assert (grid.grad_scale, grid.hess_scale) == (plain.grad_scale, plain.hess_scale)
    else:
        assert grid == GradientGrid.for_bounds(0.7 * max(weights), 0.3 * max(weights))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6), st.sampled_from(LOSSES))
def test_gradients_of_first_scores_never_saturate(seed: int, scale: float, loss: Loss) -> None:
    _, labels, weights = _problem(loss, seed)
    labels = labels * scale if isinstance(loss, (SquaredError, Poisson)) else labels
    first = loss.initial_scores(labels, weights * scale)
    grid = loss.grid(labels, weights * scale, first)
    scores = np.repeat(first[:, None], N_ROWS, axis=1)
    grads, hessians = _on_grid(loss, scores, labels, weights * scale, grid)
    assert np.abs(grads).max() <= 2 ** (GRAD_BITS - 1)
    assert hessians.max() <= 2 ** (HESS_BITS - 1)


def test_residuals_beyond_the_grid_saturate_and_keep_their_sign() -> None:
    grid = SquaredError().grid(np.array([0.0, 1.0]), np.ones(2), np.array([0.5]))
    grads, _ = _on_grid(SquaredError(), np.array([[-1e9, 1e9]]), np.array([0.0, 1.0]), np.ones(2), grid)
    assert grads[0].tolist() == [-(2**GRAD_BITS - 1), 2**GRAD_BITS - 1]


def test_means_beyond_the_grid_saturate_and_keep_their_sign() -> None:
    labels = np.array([0.0, 5.0])
    grid = _grid(Poisson(), labels, np.ones(2))
    grads, hessians = _on_grid(Poisson(), np.array([[-1e9, 1e9]]), labels, np.ones(2), grid)
    assert grads[0].tolist() == [0, 2**GRAD_BITS - 1]
    assert hessians[0].tolist() == [0, 2**HESS_BITS - 1]


def test_counts_that_are_all_zero_start_at_a_finite_score() -> None:
    first = Poisson().initial_scores(np.zeros(4), np.ones(4))
    assert np.isfinite(first).all()
    grid = Poisson().grid(np.zeros(4), np.ones(4), first)
    assert np.isfinite([grid.grad_scale, grid.hess_scale]).all()


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (Logistic(), 2.0),
        (Logistic(), 0.5),
        (Logistic(), np.nan),
        (SquaredError(), np.nan),
        (SquaredError(), np.inf),
        (Poisson(), -1.0),
        (Poisson(), np.nan),
        (Poisson(), 2e9),
        (Softmax(3), 3.0),
        (Softmax(3), -1.0),
        (Softmax(3), 0.5),
    ],
)
def test_labels_that_do_not_fit_are_refused_without_being_shown(loss: Loss, label: float) -> None:
    with pytest.raises(DataError, match=f"{loss.name} needs .*; found (others|NaN or infinity)"):
        loss.check_labels(np.array([0.0, 1.0, label]))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_labels_that_fit_are_accepted(loss: Loss) -> None:
    loss.check_labels(np.array([0.0, 1.0, 1.0]))


@pytest.mark.parametrize("base_score", [0.0, 1.0, -0.5, 2.0, np.nan])
def test_a_base_score_that_is_no_probability_is_refused(base_score: float) -> None:
    with pytest.raises(ParameterError, match="base_score is a probability for binary:logistic"):
        Logistic().score_of(base_score)


@pytest.mark.parametrize("base_score", [0.0, -0.5, np.nan])
def test_a_base_score_that_is_no_mean_of_counts_is_refused(base_score: float) -> None:
    with pytest.raises(ParameterError, match="base_score is a mean for count:poisson"):
        Poisson().score_of(base_score)


@pytest.mark.parametrize("loss", [Logistic(), SquaredError(), Poisson()], ids=lambda loss: loss.name)
def test_a_base_score_is_what_the_loss_predicts_from_it(loss: Loss) -> None:
    assert loss.predictions(np.array([[loss.score_of(0.3)]])) == pytest.approx(0.3, rel=1e-15)


def test_predictions_are_probabilities_of_the_classes_that_sum_to_one() -> None:
    scores = np.array([[1000.0, 0.0, -1000.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(Softmax(3).predictions(scores), [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]], atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_loss_is_found_by_its_name(loss: Loss) -> None:
    assert loss_by_name(loss.name, 3) == loss


def test_an_unknown_loss_is_refused_and_the_known_ones_are_listed() -> None:
    known = ", ".join(get_args(Objective))
    with pytest.raises(ParameterError, match=f"{known}; got 'rank:map'"):
        loss_by_name("rank:map")


@pytest.mark.parametrize("n_classes", [-1, 0, 1])
def test_fewer_than_two_classes_are_refused(n_classes: int) -> None:
    with pytest.raises(ParameterError, match=f"at least 2 classes; got {n_classes}"):
        Softmax(n_classes)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([Logistic(), Softmax(3)]),
    st.lists(st.tuples(st.floats(-800, 800), st.integers(0, 1), st.floats(0.01, 9) | st.integers(0, 16)), min_size=1),
)
def test_rows_of_these_losses_always_fit_a_packed_sum(loss: Loss, rows: list[tuple[float, int, float]]) -> None:
    """As many as are added without a look at their sizes: the largest gradient of all of them that often."""
    first, labels, weights = (np.array(each, np.float64) for each in zip(*rows, strict=True))
    weights[0] = max(weights[0], 0.01)
    scores = np.zeros((loss.n_outputs, len(rows)), loss.score_type)
    scores[0] = first
    grid = _grid(loss, labels, weights)
    grad, hess = _on_grid(loss, scores, labels, weights, grid)
    assert np.abs(grad).max() * STRIDE < 2**34
    assert hess.min() >= 0
    assert hess.max() * STRIDE < 2**29
