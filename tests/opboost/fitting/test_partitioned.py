"""Draws of a table in partitions: fitted to a sample, the same whatever the partitions are."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import RankSource
from opboost.fitting.noised_table import NoiseChoice
from opboost.fitting.partitioned import SampleFit, fit_sample
from opboost.fitting.recipe import Recipe
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap
from opboost.rng import seeded
from opboost.trees.binning import bin_values
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Loss, SquaredError

N_ROWS, N_SAMPLED = 3_000, 1_000
MAP = GlobalMap(epsilon=0.08, domain=IntegerDomain(1, 100))


def table(loss: Loss) -> tuple[np.ndarray, RankSource, np.ndarray, np.ndarray]:
    """An own column, a released one, labels and exact positions."""
    draw = np.random.default_rng(3)
    own, exact = draw.normal(size=N_ROWS), draw.integers(0, 100, size=N_ROWS)
    labels = own + (exact - 50) / 20 + draw.logistic(size=N_ROWS)
    codes, ranks = np.unique(MAP.randomise(exact + 1, rng=seeded(4)), return_inverse=True)
    source = RankSource(ranks.astype(np.uint8), len(codes), ColumnRelease(MAP, None, (codes - 1).astype(np.int64)))
    return own, source, labels if isinstance(loss, SquaredError) else (labels > 0).astype(float), exact


def fitted(loss: Loss, own: np.ndarray, source: RankSource, labels: np.ndarray) -> SampleFit:
    some = np.sort(np.random.default_rng(5).permutation(N_ROWS)[:N_SAMPLED])
    limits = ColumnConstraints().on(["a", "b"], are_categorical=[False] * 2, max_delta_step=0.0)
    recipe = Recipe(BoostingParameters(n_estimators=20, max_depth=3), loss, limits, seed=1)
    sampled = RankSource(source.ranks[:][some], source.n_ranks, source.release)
    binned = [bin_values(own[some], max_bin=32), None]
    return fit_sample(binned, {1: sampled}, labels[some], some, recipe, n_columns=2)


@pytest.mark.parametrize("loss", [Logistic(), SquaredError()])
def test_draws_are_the_same_in_any_partitions_and_nearer_to_the_exact_codes(loss: Loss) -> None:
    own, source, labels, exact = table(loss)
    fit = fitted(loss, own, source, labels)
    assert fit.choice in (NoiseChoice.CORRECTED, NoiseChoice.CORRECTED_AND_PLAIN)

    def drawn(start: int, end: int) -> np.ndarray:
        columns = [own[start:end], np.zeros(end - start)]
        released = [np.asarray(source.ranks[start:end])]
        (found,) = fit.versions(columns, released, labels[start:end], first_row=start, n_rows=N_ROWS)
        return found.reshape(len(fit.turns(N_ROWS)), -1)

    whole = drawn(0, N_ROWS)
    np.testing.assert_array_equal(whole, np.hstack([drawn(0, 700), drawn(700, 701), drawn(701, N_ROWS)]))
    first = source.release.positions[whole[0]]
    # A slope of labels on released codes is attenuated; on draws given the label it is hardly.
    known = exact, first, source.release.positions[source.ranks[:]]
    slope, of_draws, of_released = (np.polyfit(codes, labels, 1)[0] for codes in known)
    assert of_released < 0.85 * slope
    assert abs(of_draws - slope) < 0.5 * abs(of_released - slope)
