"""What own columns say of a label: by trees that have not seen the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import opboost.fitting.imputing
from opboost.denoise.channel import ColumnRelease
from opboost.denoise.imputation import Evidence
from opboost.denoise.sources import RankSource, sources_of
from opboost.fitting.imputing import FOLDS, OwnScores, expected_states, impute
from opboost.fitting.noised_table import Noised
from opboost.fitting.recipe import Recipe
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_values
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import Constraints
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError

pytestmark = pytest.mark.usefixtures("one_thread")

N_ROWS, POINTS = 240, 8
RELEASE = ColumnRelease(GlobalMap(epsilon=1.0, domain=IntegerDomain(1, POINTS)), None, np.arange(POINTS))


def noised(n_own: int) -> Noised:
    draw = np.random.default_rng(0)
    own = [bin_values(column, max_bin=16) for column in draw.random((n_own, N_ROWS))]
    ranks = draw.integers(0, POINTS, N_ROWS).astype(np.uint32)
    nothing = BinnedColumn(np.zeros(N_ROWS, np.uint8), np.empty(0))
    return Noised(BinnedTable.of([*own, nothing]), (n_own,), (RankSource(ranks, POINTS, RELEASE),))


def own_scores(labels: np.ndarray, loss: Loss, n_own: int = 2) -> np.ndarray:
    recipe = Recipe(BoostingParameters(), loss, Constraints.none(n_own + 1), 0)
    rng, of = np.random.default_rng(1), noised(n_own)
    fold = rng.integers(FOLDS, size=N_ROWS)
    return OwnScores.fit(of, labels, np.arange(N_ROWS), fold, recipe, rng=rng).of(of.table, fold)


def test_no_score_of_a_row_depends_on_its_own_label() -> None:
    labels = noised(2).table.bins[0] + np.random.default_rng(2).random(N_ROWS)
    changed = labels.copy()
    changed[7] += 100.0
    before, after = (own_scores(each, SquaredError()) for each in (labels, changed))
    assert before[7] == after[7]
    is_same = (before == after)[:, 0]
    # Rows of the same third were scored by the same trees, all others by trees that saw the change.
    assert 0.2 * N_ROWS < is_same.sum() < 0.45 * N_ROWS
    assert np.corrcoef(before[:, 0], labels)[0, 1] > 0.9


@pytest.mark.parametrize(("loss", "n_scores"), [(Logistic(), 1), (Softmax(2), 1), (Softmax(3), 3)])
def test_there_is_a_score_per_output_and_one_for_two_classes(loss: Loss, n_scores: int) -> None:
    labels = (np.arange(N_ROWS) % (3 if loss.n_outputs == 3 else 2)).astype(float)
    assert own_scores(labels, loss).shape == (N_ROWS, n_scores)


def test_without_own_columns_there_is_none_and_the_label_alone_is_evidence() -> None:
    labels = (np.arange(N_ROWS) % 2).astype(float)
    assert own_scores(labels, Logistic(), n_own=0).shape == (N_ROWS, 0)
    recipe = Recipe(BoostingParameters(), Logistic(), Constraints.none(1), 0)
    (imputation,), evidence = impute(noised(0), labels, np.arange(N_ROWS), recipe, rng=np.random.default_rng(1))
    drawn = imputation.draw(evidence, 3, seed=1)
    assert drawn.shape == (3, 1, N_ROWS)
    assert drawn.max() < POINTS


def told_by_own(n_rows: int = 6000, epsilon: float = 0.4) -> tuple[Noised, np.ndarray]:
    """An own column that says the true states of a released one, but for one step or two; and these states."""
    draw = np.random.default_rng(3)
    truth = draw.integers(0, POINTS, n_rows)
    release = ColumnRelease(GlobalMap(epsilon=epsilon, domain=IntegerDomain(1, POINTS)), None, np.arange(POINTS))
    reached = np.exp(release.mechanism.log_probabilities()).cumsum(axis=1)[truth]
    ranks = (reached < draw.random(n_rows)[:, None]).sum(axis=1).astype(np.uint32)
    own = bin_values(truth + draw.normal(0, 0.7, n_rows), max_bin=32)
    nothing = BinnedColumn(np.zeros(n_rows, np.uint8), np.empty(0))
    return Noised(BinnedTable.of([own, nothing]), (1,), (RankSource(ranks, POINTS, release),)), truth


def drawn_from(of: Noised, labels: np.ndarray, rows: np.ndarray) -> tuple[Evidence, np.ndarray]:
    recipe = Recipe(BoostingParameters(), Logistic(), Constraints.none(of.table.axes.n_columns), 0)
    (fit,), evidence = impute(of, labels, rows, recipe, rng=np.random.default_rng(1))
    return evidence, fit.draw(evidence, 10, seed=2)[:, 0].astype(float)


def test_own_columns_that_say_what_was_released_bring_draws_closer_to_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of, truth = told_by_own()
    every = np.arange(len(truth))
    labels = (np.random.default_rng(4).random(len(truth)) < 0.5).astype(float)
    evidence, hinted = drawn_from(of, labels, every)
    assert evidence.hints is not None
    monkeypatch.setattr(opboost.fitting.imputing, "MANY_ROWS", len(truth) - 1)
    evidence, alone = drawn_from(of, labels, every)
    assert evidence.hints is None
    hinted_error, alone_error = (((one - truth) ** 2).mean() for one in (hinted, alone))
    assert hinted_error < 0.5 * alone_error


def test_no_hint_of_a_row_depends_on_what_was_released_of_it_or_on_a_label() -> None:
    """Twin: the hints of rows of other parts, whose trees have seen the change."""
    of, truth = told_by_own(600)
    labels, every = (np.arange(600) % 2).astype(float), np.arange(600)
    (column,) = of.columns
    ranks = np.array(column.ranks)
    ranks[7] = POINTS - 1 - ranks[7]
    fold = np.random.default_rng(5).integers(FOLDS, size=600)
    recipe = Recipe(BoostingParameters(), Logistic(), Constraints.none(2), 0)
    before, after = (
        expected_states(one, sources_of(one.columns), every, fold, recipe)[0]
        for one in (of, replace(of, columns=(replace(column, ranks=ranks),)))
    )
    assert before is not None
    assert after is not None
    is_same = before == after
    assert is_same[fold == fold[7]].all()
    assert not is_same[fold != fold[7]].all()
    assert np.corrcoef(before, truth)[0, 1] > 0.8
    hints = [drawn_from(of, one, every)[0].hints for one in (labels, 1 - labels)]
    np.testing.assert_array_equal(*(one.groups for one in hints if one is not None))


def test_nothing_is_expected_of_categories() -> None:
    of, _ = told_by_own(600)
    (column,) = of.columns
    release = ColumnRelease(RandomisedResponse(epsilon=2.0, n_categories=2), None, np.arange(2), 0)
    is_first = np.array(column.ranks) < POINTS // 2
    both = tuple(
        RankSource(is_there.astype(np.uint32), 2, replace(release, category=c))
        for c, is_there in enumerate((is_first, ~is_first))
    )
    own, nothing = (BinnedColumn(of.table.bins[c], np.array(of.table.cuts[c])) for c in range(2))
    noised = Noised(BinnedTable.of([own, nothing, nothing]), (1, 2), both)
    evidence, _ = drawn_from(noised, is_first.astype(float), np.arange(600))
    assert evidence.hints is not None
    assert not evidence.hints.groups.any()
