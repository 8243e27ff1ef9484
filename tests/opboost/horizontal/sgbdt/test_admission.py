"""The individual privacy filter: records pay for as many full rounds as promised and no more."""

from __future__ import annotations

import numpy as np

from opboost.horizontal.noise.leaf_noise import LeafNoise, leaf_noise
from opboost.horizontal.rows.record_holder import Clipping
from opboost.horizontal.sgbdt.admission import pay

DELTA = 5e-8


CLIPPING = Clipping(max_grad=0.5, max_hess=1.0, ratio=4.0)


def noise(**changes) -> LeafNoise:
    settings = {"epsilon": 0.5, "delta": DELTA, "n_trees": 20, "rate": 1.0, "initial_share": 0.05, "has_filter": False}
    return leaf_noise(CLIPPING, **(settings | changes))


def test_the_filter_pays_for_as_many_full_rounds_as_promised_and_no_more():
    found = noise(has_filter=True)
    accounts = found.filter_for(3)
    assert accounts is not None
    full, half = found.mu**2, found.mu**2 / 4
    admitted = [pay(accounts, found.prices(), np.array([full, half, 0.0])) for _ in range(90)]
    assert [int(column.sum()) for column in np.array(admitted).T] == [20, 80, 90]


def test_a_filter_at_a_fixed_order_pays_for_as_many_full_rounds_too():
    found = noise(has_filter=True, rate=0.1)
    assert found.order is not None
    assert found.order >= 2
    accounts = found.filter_for(2)
    assert accounts is not None
    admitted = [pay(accounts, found.prices(), np.array([found.mu**2, found.mu**2 / 4])) for _ in range(25)]
    assert [int(column.sum()) for column in np.array(admitted).T] == [20, 25]
