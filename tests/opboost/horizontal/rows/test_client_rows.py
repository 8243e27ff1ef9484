"""Clients' rows: their sum is that of one table, answers may come later, and candidates may change between trees."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.horizontal.federated.weight_updates import weight_update
from opboost.horizontal.rows.client_rows import SummedClients
from opboost.horizontal.splits.split_candidates import uniform_candidates
from tests.support.federated_rows import M, choices, client, data

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = np.zeros(1, np.int32)


def test_the_sum_of_clients_is_that_of_all_rows_now_or_later() -> None:
    X, y = data()
    update, chosen = weight_update("newton", is_classification=True), choices("tr")
    whole = client(X, y, update, chosen)
    parts = SummedClients([client(X[rows], y[rows], update, chosen) for rows in (slice(80), slice(80, None))])
    for holder in (whole, parts):
        holder.start_tree(0)
    later = parts.totals_later(ROOT)
    np.testing.assert_array_equal(later(), whole.totals(ROOT))
    np.testing.assert_array_equal(parts.totals(ROOT), whole.totals(ROOT))


def test_other_candidates_serve_from_the_next_tree_on() -> None:
    X, y = data()
    rows = client(X, y, weight_update("newton", is_classification=True), choices("hist"))
    fewer = uniform_candidates([(0.0, 1.0)] * M, 4)
    both = SummedClients([rows])
    both.place(fewer)
    both.start_tree(0)
    out = np.zeros((1, 2, fewer.axes.n_bins), np.int64)
    both.write_histograms(ROOT, out)
    assert out.reshape(2, M, -1).sum(axis=2).tolist() == np.repeat(both.totals(ROOT).T, M, axis=1).tolist()
