"""What own columns say of a label: by trees that have not seen the row."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import RankSource, sources_of
from opboost.fitting.imputing import FOLDS, OwnScores, impute
from opboost.fitting.noised_table import NoisedRows
from opboost.fitting.recipe import Recipe
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_values
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import Constraints
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError

pytestmark = pytest.mark.usefixtures("one_thread")

N_ROWS, POINTS = 240, 8
RELEASE = ColumnRelease(GlobalMap(epsilon=1.0, domain=IntegerDomain(1, POINTS)), None, np.arange(POINTS))


def noised(n_own: int, labels: np.ndarray) -> NoisedRows:
    draw = np.random.default_rng(0)
    own = [bin_values(column, max_bin=16) for column in draw.random((n_own, N_ROWS))]
    ranks = draw.integers(0, POINTS, N_ROWS).astype(np.uint32)
    nothing = BinnedColumn(np.zeros(N_ROWS, np.uint8), np.empty(0))
    columns = (RankSource(ranks, POINTS, RELEASE),)
    return NoisedRows(BinnedTable.of([*own, nothing]), (n_own,), columns, labels, np.ones(N_ROWS))


def own_scores(labels: np.ndarray, loss: Loss, n_own: int = 2) -> np.ndarray:
    recipe = Recipe(BoostingParameters(), loss, Constraints.none(n_own + 1), 0)
    rng, of = np.random.default_rng(1), noised(n_own, labels)
    fold = rng.integers(FOLDS, size=N_ROWS)
    return OwnScores.fit(of, np.arange(N_ROWS), fold, recipe, rng=rng).of(of.table, fold)


def test_no_score_of_a_row_depends_on_its_own_label() -> None:
    labels = noised(2, np.zeros(N_ROWS)).table.bins[0] + np.random.default_rng(2).random(N_ROWS)
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
    of = noised(0, labels)
    imputation = impute(of, sources_of(of.columns), np.arange(N_ROWS), recipe, rng=np.random.default_rng(1))
    drawn = imputation.draw(3, seed=1)
    assert drawn.shape == (3, 1, N_ROWS)
    assert drawn.max() < POINTS
