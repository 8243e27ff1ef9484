"""Rows of the federated framework, whose questions are counted."""

from __future__ import annotations

import numpy as np

from opboost import rng
from opboost.horizontal.federated.query_holder import QueryHolder
from opboost.horizontal.federated.training import Choices, train
from opboost.horizontal.federated.weight_updates import LeafRule, weight_update
from opboost.horizontal.rows.client_rows import ClientRows, SummedClients
from opboost.horizontal.splits.split_candidates import uniform_candidates

M, D = 3, 2
LEAF = LeafRule(learning_rate=0.3, reg_lambda=1.0, max_leaf=2.0)
COLUMNS = uniform_candidates([(0.0, 1.0)] * M, 8)


def data(n_rows: int = 240, seed: int = 0):
    """Labels on which every level of a tree gains: two columns count, and a cut of either one leaves the other."""
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, M))
    noisy = X @ np.array([1.0, 0.8, 0.6]) + 0.6 * generator.standard_normal(n_rows)
    X[generator.random((n_rows, M)) < 0.03] = np.nan
    return X, (noisy > np.median(noisy)).astype(float)


def client(X, y, update, choices, columns=COLUMNS):
    return ClientRows(
        X, y, columns=columns, gradients=update.gradients, clipping=update.clipping, walks=choices.split_method == "tr"
    )


def choices(split_method="tr", **settings):
    return Choices(**{"split_method": split_method, "n_trees": 6, "max_depth": D, "hessian_rounds": 2, **settings})


def holder_of(n_queries: int, multiplier: float = 0.0, update=None, table=None) -> QueryHolder:
    update = update or weight_update("newton", is_classification=True)
    holder = QueryHolder(
        client(*(table or data()), update, choices("hist")),
        axes=COLUMNS.axes,
        update=update,
        multiplier=multiplier,
        n_queries=n_queries,
        rng=rng.seeded(1),
    )
    holder.start_tree(0)
    return holder


def trained(choices, *, update=None, multiplier=0.0, n_clients=1, seed=0, table=None):
    update = update or weight_update("newton", is_classification=True)
    X, y = table or data()
    parts = np.array_split(np.random.default_rng(5).permutation(len(y)), n_clients) if n_clients > 1 else [slice(None)]
    clients = [client(X[rows], y[rows], update, choices) for rows in parts]
    holder = clients[0] if n_clients == 1 else SummedClients(clients)
    return train(holder, COLUMNS, choices, update=update, leaf=LEAF, multiplier=multiplier, rng=rng.seeded(seed))
