"""Trees, and the ensemble that predicts with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Nodes, Values
from opboost.errors import DataError, ModelFileError
from opboost.trees.kernels import predict_scores
from opboost.trees.losses import Loss


@dataclass(frozen=True, slots=True)
class Tree:
    """A binary tree in arrays, node 0 the root; all arrays have shape ``(n_nodes,)``.

    Attributes
    ----------
    columns : ndarray of int32
        Column that the node splits on; -1 for a leaf.
    thresholds : ndarray of float64
        ``x <= threshold`` goes left. While a tree grows, x is a bin and the threshold a cut.
    missing_left : ndarray of bool
        Which way missing goes.
    lefts, rights : ndarray of int32
        Children, numbered after their parent; 0 for a leaf.
    values : ndarray of float64
        What a leaf adds to the score; 0 elsewhere.
    gains : ndarray of float64
        Gain of the split; 0 for a leaf.
    covers : ndarray of float64
        Sum of Hessians. A statistic of the labels: never in anything that leaves the active party.
    """

    columns: Nodes
    thresholds: Values
    missing_left: Mask
    lefts: Nodes
    rights: Nodes
    values: Values
    gains: Values
    covers: Values

    def __post_init__(self) -> None:
        """Refuse anything that a walk from the root could not finish, as a file might hold."""
        lengths = {len(getattr(self, name)) for name in self.__slots__}
        if lengths != {self.n_nodes} or self.n_nodes == 0:
            raise ModelFileError(f"the arrays of a tree must have one length of at least 1; found {sorted(lengths)}")
        nodes = np.arange(self.n_nodes)
        splits = self.columns >= 0
        children = np.concatenate([self.lefts[splits], self.rights[splits]])
        is_ordered = (self.lefts[splits] > nodes[splits]).all() and (self.rights[splits] > nodes[splits]).all()
        is_reached_once = len(children) == len(np.unique(children)) == self.n_nodes - 1
        if not is_ordered or (children >= self.n_nodes).any() or not is_reached_once:
            raise ModelFileError("a tree's children must come after their parent, each with exactly one parent")
        for name in ("thresholds", "values", "gains", "covers"):
            if not np.isfinite(getattr(self, name)).all():
                raise ModelFileError(f"a tree's {name} must be finite")
        if (self.columns < -1).any():
            raise ModelFileError("a tree's columns must be -1 for a leaf or a column's index")

    @property
    def n_nodes(self) -> int:
        return len(self.columns)

    @property
    def is_leaf(self) -> Mask:
        return self.columns < 0

    def scaled(self, factor: float) -> Tree:
        """The same tree with every leaf's value multiplied."""
        return replace(self, values=self.values * factor)


@dataclass(frozen=True, slots=True)
class Feature:
    """One input of an ensemble.

    Attributes
    ----------
    name : str
        The column's name, opaque if its owner wants it so.
    owner : str, optional
        The passive party that answers for this input with one bit; None for a column that A holds.
    rank : int, optional
        For an owner's test: it asks "rank <= this".
    missing_left : bool
        For an owner's test: its answer for a missing cell.
    """

    name: str
    owner: str | None = None
    rank: int | None = None
    missing_left: bool = False

    def __post_init__(self) -> None:
        is_rank = self.rank is None or (type(self.rank) is int and self.rank >= 0)
        is_named = isinstance(self.name, str) and (self.owner is None or isinstance(self.owner, str))
        if not is_named or not is_rank or not isinstance(self.missing_left, bool):
            raise ModelFileError("a feature needs a name, and an owner's test an owner, a rank and a way for missing")


@dataclass(frozen=True)
class Ensemble:
    """Trees whose leaf values add up to a score.

    Attributes
    ----------
    trees : tuple of Tree
        Round by round, ``loss.n_outputs`` trees each; their values include the learning rate.
    base_scores : ndarray of float64, shape (n_outputs,)
    loss : Loss
    features : tuple of Feature
        What the columns of a feature matrix mean. An owner's test holds 0 for left and 1 for right.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    features: tuple[Feature, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.base_scores.shape != (self.loss.n_outputs,) or not np.isfinite(self.base_scores).all():
            raise ModelFileError(f"an ensemble needs {self.loss.n_outputs} finite base scores")
        if len(self.trees) % self.loss.n_outputs:
            raise ModelFileError(f"{len(self.trees)} trees do not divide into rounds of {self.loss.n_outputs}")
        highest = max((int(tree.columns.max()) for tree in self.trees), default=-1)
        if highest >= len(self.features):
            raise ModelFileError(f"a tree splits on column {highest}, but there are {len(self.features)} features")

    @property
    def n_rounds(self) -> int:
        return len(self.trees) // self.loss.n_outputs

    @property
    def owners(self) -> tuple[str, ...]:
        """The passive parties, in the order of their features."""
        return tuple(dict.fromkeys(feature.owner for feature in self.features if feature.owner is not None))

    def scores(self, features: Values) -> Values:
        """Raw scores, shape ``(n_rows, n_outputs)``, of a matrix of shape ``(n_rows, n_features)``."""
        if features.ndim != 2 or features.shape[1] != len(self.features):
            raise DataError(f"the model has {len(self.features)} features; got an array of shape {features.shape}")
        out = np.tile(self.base_scores, (len(features), 1))
        if self.trees:
            predict_scores(np.ascontiguousarray(features, dtype=np.float64), *self._flat, out)
        return out

    def predict(self, features: Values) -> Values:
        """Probabilities or values, as the loss defines them."""
        return self.loss.predictions(self.scores(features))

    @cached_property
    def _flat(self) -> tuple[NDArray[np.generic], ...]:
        """All trees' arrays, one behind the other, as the compiled walk reads them."""
        sizes = [tree.n_nodes for tree in self.trees]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        outputs = np.arange(len(self.trees)) % self.loss.n_outputs
        names = ("columns", "thresholds", "missing_left", "lefts", "rights", "values")
        return (
            starts,
            outputs,
            *(np.concatenate([getattr(tree, name) for tree in self.trees]) for name in names),
        )
