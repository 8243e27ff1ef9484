"""Latent classes: what they recover, and that draws follow the posterior."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from opboost.denoise.channel import category_channel
from opboost.denoise.mixture import LatentClasses, Observed, margin
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap


def geometric(n: int, epsilon: float) -> np.ndarray:
    return np.exp(GlobalMap(epsilon=epsilon, domain=IntegerDomain(1, n)).log_probabilities())


@pytest.mark.parametrize(
    "channel", [category_channel(RandomisedResponse(epsilon=1.0, n_categories=4), None).matrix, geometric(4, 1.0)]
)
def test_a_planted_law_is_recovered_through_a_channel_of_known_inverse(channel: np.ndarray) -> None:
    """The released law is given exactly, so the deconvolved one is the inverse channel's, up to the steps made."""
    planted = np.array([0.5, 0.1, 0.3, 0.1])
    released = planted @ channel
    np.testing.assert_allclose(released @ np.linalg.inv(channel), planted)
    counts = np.rint(released * 10**9).astype(np.int64)
    np.testing.assert_allclose(margin(channel, counts), planted, atol=0.01)


def small() -> LatentClasses:
    """Two classes, two sources of three states, one exact variable of two states, one number."""
    rng = np.random.default_rng(1)
    laws = tuple(rng.dirichlet(np.ones(3), size=2) for _ in range(2))
    label = np.array([[0.9, 0.2], [0.1, 0.8]])
    return LatentClasses(
        (geometric(3, 0.4), geometric(3, 1.0)),
        np.array([0.3, 0.7]),
        laws,
        (label,),
        np.array([[-1.0, 0.5]]),
        np.array([[0.5, 1.0]]),
    )


def posterior(model: LatentClasses, released: tuple[int, int], label: int, number: float) -> np.ndarray:
    """``Pr[x1, x2 | z1, z2, label, number]`` by adding up everything, shape (3, 3)."""
    table = np.zeros((3, 3))
    for k, x1, x2 in itertools.product(range(2), range(3), range(3)):
        gap = (number - model.means[0, k]) / model.deviations[0, k]
        seen = model.weights[k] * model.exact_laws[0][label, k] * np.exp(-0.5 * gap**2) / model.deviations[0, k]
        for x, law, channel, z in zip((x1, x2), model.laws, model.channels, released, strict=True):
            seen = seen * law[k, x] * channel[x, z]
        table[x1, x2] += seen
    return table / table.sum()


def statistic(model: LatentClasses, drawn_by: LatentClasses, n_rows: int = 20_000) -> float:
    """Chi-squared distance of the draws for one released pair and label, repeated, from the enumerated posterior."""
    observed = Observed(
        np.tile(np.array([[2, 0]], np.uint8), (n_rows, 1)),
        np.ones((n_rows, 1), np.uint8),
        np.full((n_rows, 1), -0.3, np.float32),
    )
    states = drawn_by.draw(observed, 2, seed=7)
    counts = np.bincount(states[:, 0].ravel() * 3 + states[:, 1].ravel(), minlength=9)
    expected = posterior(model, (2, 0), 1, -0.3).ravel() * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_draws_follow_the_enumerated_posterior_and_a_broken_twin_does_not() -> None:
    """40,000 draws, eight degrees of freedom, false alarms once in a million. The twin leaves the label out."""
    most = float(chi2.isf(1e-6, 8))
    model = small()
    assert statistic(model, model) < most
    blind = replace(model, exact_laws=(np.full((2, 2), 0.5),))
    assert statistic(model, blind) > 2 * most
    assert statistic(model, replace(model, channels=(np.eye(3) * 0.9 + 0.1 / 3,) * 2)) > 2 * most


def test_responsibilities_are_the_enumerated_ones_and_unknown_numbers_say_nothing() -> None:
    model = small()
    observed = Observed(
        np.array([[0, 1], [2, 2]], np.uint8), np.array([[0], [1]], np.uint8), np.array([[0.3], [np.nan]], np.float32)
    )
    seen = [law @ channel for law, channel in zip(model.laws, model.channels, strict=True)]
    expected = np.empty((2, 2))
    for i in range(2):
        released, number = observed.released[i], observed.numbers[i, 0]
        gap = (number - model.means[0]) / model.deviations[0]
        density = np.exp(-0.5 * gap**2) / model.deviations[0] if np.isfinite(number) else 1.0
        law = model.weights * model.exact_laws[0][observed.states[i, 0]] * density
        expected[i] = law * seen[0][:, released[0]] * seen[1][:, released[1]]
    np.testing.assert_allclose(model.classes(observed), expected / expected.sum(axis=1, keepdims=True), rtol=1e-5)


def test_draws_do_not_depend_on_the_pieces_in_which_rows_come() -> None:
    rng, model = np.random.default_rng(0), small()
    observed = Observed(
        rng.integers(3, size=(1000, 2)).astype(np.uint8),
        rng.integers(2, size=(1000, 1)).astype(np.uint8),
        rng.normal(size=(1000, 1)).astype(np.float32),
    )
    whole = model.draw(observed, 3, seed=5)
    pieces = [model.draw(observed.rows(slice(a, b)), 3, seed=5, first_row=a) for a, b in ((0, 300), (300, 1000))]
    np.testing.assert_array_equal(whole, np.concatenate(pieces, axis=2))
    assert (whole != model.draw(observed, 3, seed=6)).any()


def test_two_planted_classes_are_told_apart_through_the_noise() -> None:
    """Columns of 20 points at a whole-range loss of 4, labels that follow the class: 4,000 rows."""
    rng, n = np.random.default_rng(3), 4000
    channel = geometric(20, 0.2)
    in_second = rng.random(n) < 0.4
    truth = np.where(in_second, 15, 4)[:, None] + rng.integers(-2, 3, size=(n, 3))
    released = np.array([[rng.choice(20, p=channel[x]) for x in row] for row in truth], np.uint8)
    observed = Observed(released, in_second.astype(np.uint8)[:, None], np.empty((n, 0), np.float32))
    model = LatentClasses.fit(observed, [channel] * 3, [2], n_classes=2, n_steps=40, rng=rng)
    states = model.draw(observed, 5, seed=1)
    for c in range(3):
        drawn = states[:, c].mean(axis=0)
        assert abs(drawn[in_second].mean() - 15) < 0.5
        assert abs(drawn[~in_second].mean() - 4) < 0.5


def test_rows_that_are_nearly_the_same_are_fitted_without_a_word() -> None:
    """Own columns of few values: of each the trees of three parts of the rows say nearly the same."""
    n_rows, rng = 400, np.random.default_rng(0)
    numbers = np.array([-1.0, 1.0, 1.0 + 1e-5, 1.0 + 2e-5])[np.arange(n_rows) % 4, None]
    released = np.zeros((n_rows, 1), np.uint8)
    observed = Observed(released, np.zeros((n_rows, 0), np.uint8), numbers.astype(np.float32))
    found = LatentClasses.fit(observed, [np.eye(2)], [], n_classes=4, n_steps=2, rng=rng)
    assert np.isfinite(found.means).all()
