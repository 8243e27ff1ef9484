"""The recommended recipe for a budget, and what goes on from a finished training."""

from __future__ import annotations

import pytest

from opboost.horizontal.recommended.calibration import going_on
from opboost.horizontal.rows.client_rows import SummedClients
from opboost.metrics import log_loss, rmse
from opboost.rng import seeded
from tests.support.recommended_owners import THIRDS, earlier_of, recipe, records_of, trained

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_three_owners_go_on_with_the_very_model_of_one_which_is_better(n_classes: int) -> None:
    of = going_on(recipe(n_classes, None), earlier_of(n_classes))
    one, three = (trained(of, parts) for parts in ([slice(None)], THIRDS))
    assert [tree.values.tolist() for tree in one.trees] == [tree.values.tolist() for tree in three.trees]
    assert of.earlier
    before = of.earlier.model
    assert len(one.trees) == 2 * len(before.trees)
    X, y = records_of(n_classes)
    far_off = log_loss if n_classes else rmse
    # A mean of models of the same records knows no more than each.
    assert far_off(y, one.predict(X)) < far_off(y, before.predict(X)) - (0.002 if n_classes < 4 else -0.002)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_nothing_depends_on_records_of_before_but_through_the_model(n_classes: int) -> None:
    """The twin has one row more that is new, and answers otherwise."""

    def leaves(n_before: int, n_changed: int) -> list[list[float]]:
        of = going_on(recipe(n_classes, None), earlier_of(n_classes, n_rows=n_before))
        X, y = records_of(n_classes, 60)
        X[:n_changed], y[:n_changed] = 1.0, 1.0
        holder = SummedClients([of.rows(X, y, rng=seeded(3))])
        return [tree.values.tolist() for tree in of.train(holder, shape_bits=seeded(7), rng=seeded(8)).trees]

    assert leaves(40, 40) == leaves(40, 0)
    assert leaves(39, 40) != leaves(39, 0)
