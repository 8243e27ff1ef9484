"""First rounds as the coordinator leads them: scores, range and cells are learnt."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from opboost.horizontal.recommended.calibration import recommended_among_owners
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from tests.support.recommended_owners import DELTA, THIRDS, recipe, records_of, trained

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_first_rounds_learn_scores_range_and_cells(n_classes: int) -> None:
    """Without noise: shares or the mean as they are, and labels' range in the middle of bounds that are too wide."""
    of = recipe(n_classes, None)
    X, y = records_of(n_classes)
    task = dataclasses.replace(of.task, epsilon=math.inf)
    model = trained(
        recommended_among_owners(
            task, n_classes=n_classes, delta=DELTA, n_records=900, n_honest=None, sizes=GivenSizes(0, 2)
        ),
        THIRDS,
    )
    predicted = model.predict(X)
    if n_classes > 2:
        assert predicted[0] == pytest.approx(np.bincount(y.astype(int)) / len(y))
    else:
        assert predicted[0] == pytest.approx(y.mean(), abs=2e-3)
