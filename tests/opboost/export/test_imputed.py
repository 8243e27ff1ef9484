"""Imputation in exported models: missing cells score as the constants do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opboost.export.imputed import imputed
from opboost.trees.losses import Logistic, Softmax
from opboost.trees.tree import Feature
from tests.support.exported_models import rows, trained


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_missing_cells_score_as_constants_do(loss: Logistic | Softmax) -> None:
    ensemble, _ = trained(loss)
    new = rows(500, seed=5)
    for width, kind in ((-0.4, 2.0), (9.0, 0.0), (0.1, 3.0)):
        filled = new.copy()
        for column, constant in ((0, width), (2, kind)):
            filled[np.isnan(new[:, column]), column] = constant
        found = imputed(ensemble, {"width": width, "kind": kind}).scores(new)
        np.testing.assert_array_equal(found, ensemble.scores(filled))
    # A constant of a column that nobody names changes nothing, nor does one of another party's test.
    assert (ensemble.scores(filled) != ensemble.scores(new)).any()
    np.testing.assert_array_equal(imputed(ensemble, {"other": 1.0}).scores(new), ensemble.scores(new))


def test_another_partys_test_keeps_its_way() -> None:
    ensemble, _ = trained(Logistic())
    asked = replace(ensemble, features=(Feature("width", "shop", 3), *ensemble.features[1:]))
    ways = [[tree.missing_left.tolist() for tree in one.trees] for one in (imputed(asked, {"width": 0.0}), asked)]
    assert ways[0] == ways[1]
