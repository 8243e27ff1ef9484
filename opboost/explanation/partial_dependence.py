"""Importance and partial dependence of the columns of a model, by the trees' own statistics.

No row is looked at and nobody is asked: at a split on another column, a score goes both ways in the proportion of the
covers. Of a passive party's column, what its tests or cells divide is known by ranks and by numbers of cells alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.errors import DataError
from opboost.trees.flat_trees import FlatTrees
from opboost.trees.tree import Ensemble, Feature


@dataclass(frozen=True, slots=True, eq=False)
class Dependence:
    """Importance and partial dependence of a column.

    Attributes
    ----------
    column : Feature
    share_of_gain : float
        In the gain of all splits.
    kind : {"thresholds", "categories", "ranks", "cells"}
        What `places` are.
    places : ndarray of float64, shape (n_places,)
        Thresholds or ranks up to which each score but the last holds; or the categories or cells of the scores.
    scores : ndarray of float64, shape (n_places, n_outputs) or (n_places + 1, n_outputs)
        Mean raw scores.
    missing : ndarray of float64, shape (n_outputs,)
        The same where the cell is missing.
    tests : ndarray of int64, shape (n_places,)
        Of ranks: the number of a test of each among all tests of the column's owner.
    """

    column: Feature
    share_of_gain: float
    kind: Literal["thresholds", "categories", "ranks", "cells"]
    places: Values
    scores: Values
    missing: Values
    tests: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they are written to files."""
        return {
            "owner": self.column.owner,
            "column": self.column.name,
            "share_of_gain": self.share_of_gain,
            self.kind: self.places.tolist(),
            "scores": self.scores.tolist(),
            "missing": self.missing.tolist(),
            **({"tests": self.tests.tolist()} if self.kind == "ranks" else {}),
        }


def dependences(ensemble: Ensemble) -> list[Dependence]:
    """The dependence of a model on each of its columns but base margins, the most important one first.

    Raises
    ------
    DataError
        If the trees have no covers.
    """
    flat = ensemble.flat
    if (flat.covers[flat.roots] <= 0)[~flat.is_leaf[flat.roots]].any():
        raise DataError("partial dependence needs the trees' covers, and this model has none")
    gains = ensemble.importance("total_gain")
    inputs: dict[Feature, list[int]] = {}
    for i, feature in enumerate(ensemble.features):
        if i not in ensemble.offsets:
            inputs.setdefault(feature.column, []).append(i)
    found = (_dependence(ensemble, column, np.array(features), gains) for column, features in inputs.items())
    return sorted(found, key=lambda one: -one.share_of_gain)


def _dependence(ensemble: Ensemble, column: Feature, inputs: NDArray[np.int64], gains: Values) -> Dependence:
    flat, tests = ensemble.flat, np.empty(0, np.int64)
    asks = np.isin(flat.columns, inputs) & ~flat.is_leaf
    kind: Literal["thresholds", "categories", "ranks", "cells"]
    if ensemble.features[inputs[0]].rank is not None:
        ranks = np.array([ensemble.features[i].rank for i in inputs], np.float64)
        kind, (places, first) = "ranks", np.unique(ranks, return_index=True)
        tests = np.searchsorted(ensemble.inputs[column.owner], inputs[first])
        # A test's input is 1 where it fails.
        answers = (np.append(places, np.inf)[:, None] > ranks).astype(np.float64)
        absent = np.array([not ensemble.features[i].missing_left for i in inputs], np.float64)
    else:
        if column.n_cells is not None:
            kind, places = "cells", np.arange(float(column.n_cells))
        elif (flat.sets[asks] >= 0).any():
            kind, places = "categories", np.arange(float(flat.members.shape[1]))
        else:
            kind, places = "thresholds", np.unique(flat.thresholds[asks])
        answers = (np.append(places, np.inf) if kind == "thresholds" else places)[:, None]
        absent = np.full(1, np.nan)
    scores = mean_scores(flat, ensemble.base_scores, inputs, np.vstack([answers, absent]))
    share = float(gains[inputs].sum() / (gains.sum() or 1))
    return Dependence(column, share, kind, places, scores[:-1], scores[-1], tests)


def mean_scores(flat: FlatTrees, base_scores: Values, inputs: NDArray[np.int64], answers: Values) -> Values:
    """Raw scores where some inputs are known, averaged over the others by the covers, ``(n_points, n_outputs)``.

    Parameters
    ----------
    flat : FlatTrees
    base_scores : ndarray of float64, shape (n_outputs,)
    inputs : ndarray of int64, shape (n_known,)
    answers : ndarray of float64, shape (n_points, n_known)
    """
    out = np.tile(base_scores, (len(answers), 1)).astype(np.float64)
    nodes, weights = flat.roots.astype(np.int64), np.ones((len(flat.roots), len(answers)))
    is_leaf, outputs = flat.is_leaf, flat.node_outputs
    place = np.full(int(max(flat.columns.max(), inputs.max())) + 1, -1)
    place[inputs] = np.arange(len(inputs))
    while len(nodes):
        ends = is_leaf[nodes]
        np.add.at(out.T, outputs[nodes[ends]], flat.values[nodes[ends], None] * weights[ends])
        nodes, weights = nodes[~ends], weights[~ends]
        lefts = flat.lefts[nodes].astype(np.int64)
        shares = np.repeat((flat.covers[lefts] / flat.covers[nodes])[:, None], len(answers), axis=1)
        known = place[flat.columns[nodes]] >= 0
        if known.any():
            shares[known] = _goes_left(flat, nodes[known], answers[:, place[flat.columns[nodes[known]]]].T)
        nodes = np.concatenate([lefts, lefts + 1])
        weights = np.concatenate([weights * shares, weights * (1 - shares)])
    return out


def _goes_left(flat: FlatTrees, nodes: NDArray[np.int64], cells: Values) -> Mask:
    """Which way cells go at nodes, shape ``(n_nodes, n_points)``."""
    all_nodes = np.repeat(nodes, cells.shape[1])
    return flat.goes_left(all_nodes, cells.ravel()).reshape(cells.shape)
