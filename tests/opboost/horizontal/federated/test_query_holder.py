"""Questions to clients: each is charged before it is answered, and has the noise of one sensitivity."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.federated.weight_updates import weight_update
from tests.support.federated_rows import COLUMNS, M, data, holder_of

pytestmark = pytest.mark.usefixtures("one_thread")


ROOT, ALL = np.zeros(1, np.int32), np.arange(M)


@pytest.mark.parametrize(
    ("ask", "price"),
    [
        (lambda holder: holder.totals(ROOT), 1),
        (lambda holder: holder.histograms(ROOT, ALL), M),
        (lambda holder: holder.histograms(ROOT, ALL[:1]), 1),
        (lambda holder: holder.left_sums(ROOT, ALL, np.ones((1, M), int), np.ones(1, bool)), M),
        (lambda holder: holder.weights(ALL), M),
    ],
)
def test_a_question_is_charged_before_it_is_answered(ask, price):
    """Trap 7 as well: G and H together are one query."""
    enough, short = holder_of(price), holder_of(price - 1)
    ask(enough)
    assert enough.n_asked == price
    with pytest.raises(AccountError, match="nothing was released"):
        ask(short)
    assert short.n_asked == 0
    with pytest.raises(AccountError, match="were answered"):
        ask(enough)


def test_exact_histograms_and_nodes_with_a_common_row_are_refused():
    holder = holder_of(100)
    with pytest.raises(AccountError, match="exact histograms are never released"):
        holder.write_histograms(ROOT, np.zeros((1, 2, COLUMNS.axes.n_bins), np.int64))
    with pytest.raises(AccountError, match="without a common row"):
        holder.totals(np.array([0, 0], np.int32))


@pytest.mark.parametrize("name", ["newton", "gradient", "averaging"])
def test_noise_on_every_answer_has_its_deviation(name):
    """4,000 numbers each: a deviation off by 6 per cent has odds of one in ten million."""
    update = weight_update(name, is_classification=True)
    exact, noisy = holder_of(10**6, update=update), holder_of(10**6, 50.0, update=update)
    std = 50.0 * update.clipping.sensitivity

    def released(holder, ask):
        return np.stack([ask(holder) for _ in range(80)])

    for ask in (
        lambda holder: np.stack(update.scales)[:, None, None] ** -1 * holder.histograms(ROOT, ALL)[0],
        lambda holder: (
            np.stack(update.scales)[:, None] ** -1
            * np.repeat(holder.left_sums(ROOT, ALL, np.ones((1, M), int), np.ones(1, bool))[0], 1, axis=1)
        ),
    ):
        difference = released(noisy, ask) - released(exact, ask)
        tolerance = 6 / math.sqrt(difference.size)
        assert difference.std() == pytest.approx(std, rel=max(tolerance, 0.06))
    weights = released(noisy, lambda holder: holder.weights(ALL)) - released(exact, lambda holder: holder.weights(ALL))
    assert weights.std() == pytest.approx(50.0 * update.hess_sensitivity, rel=0.08)


@pytest.mark.parametrize("name", ["newton", "gradient", "averaging"])
def test_one_record_more_moves_an_answer_by_no_more_than_the_sensitivity(name):
    """Exhaustive over the records of a table and all kinds of questions."""
    X, y = data(40)
    update = weight_update(name, is_classification=True)
    scales = np.array(update.scales)[:, None]
    largest = 0.0
    whole = holder_of(100, update=update, table=(X, y))
    answers = [whole.histograms(ROOT, ALL[:1])[0, :, 0] / scales, whole.totals(ROOT).T / scales]
    weights = whole.weights(ALL[:1])
    for left_out in range(40):
        rest = np.delete(np.arange(40), left_out)
        fewer = holder_of(100, update=update, table=(X[rest], y[rest]))
        others = [fewer.histograms(ROOT, ALL[:1])[0, :, 0] / scales, fewer.totals(ROOT).T / scales]
        moves = [float(np.sqrt(((a - b) ** 2).sum())) for a, b in zip(answers, others, strict=True)]
        largest = max(largest, *moves)
        assert max(moves) <= update.true_sensitivity * (1 + 1e-9)
        assert np.abs(weights - fewer.weights(ALL[:1])).max() <= update.hess_sensitivity * (1 + 1e-9)
    if name != "newton":  # at score 0 gradients of classes are a half
        assert largest > 0.75 * update.true_sensitivity
