"""Trees, and the ensemble that predicts with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Nodes, Values, read_only
from opboost.errors import DataError, ModelFileError, ParameterError
from opboost.trees.explanation import shapley_values
from opboost.trees.flat_trees import FlatTrees, flatten
from opboost.trees.kernels.prediction import is_sound, predict_scores
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import Loss

# Categories are numbered 0, 1, 2, ...; numbers of cells, and that of a missing one, are a byte; ranks have 32 bits.
MAX_CATEGORIES, MOST_GRID_CELLS, MAX_RANK = 1 << 16, 255, (1 << 32) - 1

# A threshold for "every present value goes left": finite, so that model files need no infinity.
PRESENT = float(np.finfo(np.float64).max)

# What of a tree refers to other nodes.
_LINKS = ("lefts", "rights", "left_categories")


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
    values, gains : ndarray of float64
        What a leaf adds to the score, 0 elsewhere; gain of a split, 0 for a leaf.
    covers : ndarray of float64
        Sum of Hessians. A statistic of the labels: never in anything that leaves the active party.
    left_categories : mapping of int to tuple of int
        For each node that splits on categories, those that go left, in ascending order; all others, known or not, go
        right. The node's threshold has no meaning.
    """

    columns: Nodes
    thresholds: Values
    missing_left: Mask
    lefts: Nodes
    rights: Nodes
    values: Values
    gains: Values
    covers: Values
    left_categories: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the tree: every walk from the root must end in a leaf."""
        numbers = {name: getattr(self, name) for name in ("thresholds", "values", "gains", "covers")}
        links = self.columns, self.lefts, self.rights
        lengths = {len(array) for array in (*links, *numbers.values(), self.missing_left)}
        if len(lengths) > 1 or self.n_nodes == 0:
            raise ModelFileError(f"the arrays of a tree must have one length of at least 1; found {sorted(lengths)}")
        if not is_sound(np.array(links, np.int64), np.array([*numbers.values()], np.float64)):
            wrong = [name for name, array in numbers.items() if not np.isfinite(array).all()]
            rule = "children must come after their parent, with exactly one parent; a leaf has none, its column is -1"
            raise ModelFileError(f"a tree's {' and '.join(wrong)} must be finite" if wrong else rule)
        for node, categories in self.left_categories.items():
            is_sorted = all(low < high for low, high in pairwise((-1, *categories, MAX_CATEGORIES)))
            if not 0 <= node < self.n_nodes or self.columns[node] < 0 or not categories or not is_sorted:
                raise ModelFileError(
                    f"the categories of a split must be ascending integers of at least 0 and under {MAX_CATEGORIES}, "
                    "at a node that splits"
                )

    @property
    def n_nodes(self) -> int:
        return len(self.columns)

    @property
    def is_leaf(self) -> Mask:
        return self.columns < 0

    @property
    def depth(self) -> int:
        """The longest way from the root to a leaf, in splits."""
        depths = np.zeros(self.n_nodes, np.int64)
        for node in np.flatnonzero(~self.is_leaf):
            depths[[self.lefts[node], self.rights[node]]] = depths[node] + 1
        return int(depths.max())

    def in_levels(self) -> Tree:
        """The same tree, its nodes numbered level by level and siblings side by side."""
        inner = np.flatnonzero(~self.is_leaf)
        if (self.lefts[inner] == 2 * np.arange(len(inner)) + 1).all() and (self.rights == self.lefts + 1)[inner].all():
            return self
        level, levels = np.zeros(1, np.int32), []
        while len(level):
            levels.append(level)
            parents = level[self.columns[level] >= 0]
            level = np.stack([self.lefts[parents], self.rights[parents]], axis=1).ravel()
        order = np.concatenate(levels)
        place = np.empty(self.n_nodes, np.int32)
        place[order] = np.arange(self.n_nodes)
        is_leaf = self.is_leaf[order]
        arrays = {field.name: getattr(self, field.name)[order] for field in fields(self) if field.name not in _LINKS}
        return Tree(
            **arrays,
            lefts=np.where(is_leaf, 0, place[self.lefts[order]]).astype(np.int32),
            rights=np.where(is_leaf, 0, place[self.rights[order]]).astype(np.int32),
            left_categories={int(place[node]): categories for node, categories in self.left_categories.items()},
        )

    def scaled(self, factor: float) -> Tree:
        """The same tree with every leaf's value multiplied."""
        return self if factor == 1 else replace(self, values=self.values * factor)

    def with_children_swapped(self, nodes: Mask) -> Tree:
        """The tree with left and right exchanged at some nodes, for missing values too; tests stay as they are."""
        lefts, rights = np.where(nodes, (self.rights, self.lefts), (self.lefts, self.rights))
        return replace(self, lefts=lefts, rights=rights, missing_left=self.missing_left ^ nodes)


_LINK, _ZERO = np.zeros(1, np.int32), np.zeros(1)
LEAF = Tree(_LINK - np.int32(1), _ZERO, _LINK > 0, _LINK, _LINK, _ZERO, _ZERO, _ZERO)


@dataclass(frozen=True, slots=True)
class Feature:
    """One input of an ensemble.

    Attributes
    ----------
    name : str
        The column's name, opaque if its owner wants it so.
    owner : str, optional
        The passive party that answers for this input; None for a column that A holds.
    rank, missing_left : int, optional, and bool
        For an owner's test: it asks "rank <= this", and what it answers for a missing cell.
    n_cells : int, optional
        Of a column that its owner answers for with the number of a cell, from 0; NaN where it is missing.
    """

    name: str
    owner: str | None = None
    rank: int | None = None
    missing_left: bool = False
    n_cells: int | None = None

    def __post_init__(self) -> None:
        counts = (self.rank, MAX_RANK), (self.n_cells, MOST_GRID_CELLS)
        is_count = all(one is None or (type(one) is int and 0 <= one <= most) for one, most in counts)
        is_named = isinstance(self.name, str) and (self.owner is None or isinstance(self.owner, str))
        if not is_named or not is_count or not isinstance(self.missing_left, bool):
            raise ModelFileError("a feature needs a name, and an owner's test an owner, a rank and a way for missing")

    @property
    def column(self) -> Feature:
        """The column behind an owner's split test."""
        return replace(self, rank=None, missing_left=False)


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
    offsets : tuple of int
        Per output, the feature whose value is added to the score; empty for none.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    features: tuple[Feature, ...] = field(default=())
    offsets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.base_scores.shape != (self.loss.n_outputs,) or not np.isfinite(self.base_scores).all():
            raise ModelFileError(f"an ensemble needs {self.loss.n_outputs} finite base scores")
        if len(self.trees) % self.loss.n_outputs:
            raise ModelFileError(f"{len(self.trees)} trees do not divide into rounds of {self.loss.n_outputs}")
        if len(self.offsets) not in (0, self.loss.n_outputs) or not all(
            type(i) is int and 0 <= i < len(self.features) for i in self.offsets
        ):
            raise ModelFileError(f"an ensemble needs a feature to add to each of {self.loss.n_outputs} scores")
        highest = max((int(tree.columns.max()) for tree in self.trees), default=-1)
        if highest >= len(self.features):
            raise ModelFileError(f"a tree splits on column {highest}, but there are {len(self.features)} features")

    def _repr_html_(self) -> str:
        owners = f", of which columns of {', '.join(self.owners)}" if self.owners else ""
        counts = f"{len(self.trees)} trees in {self.n_rounds} rounds on {len(self.features)} inputs{owners}"
        return f"<p>This model for {escape(self.loss.name)} has {escape(counts)}.</p>"

    @property
    def n_rounds(self) -> int:
        return len(self.trees) // self.loss.n_outputs

    @property
    def owners(self) -> tuple[str, ...]:
        """The passive parties, in the order of their features."""
        return tuple(owner for owner in self.inputs if owner is not None)

    @cached_property
    def inputs(self) -> Mapping[str | None, NDArray[np.int64]]:
        """Positions of the features of each party, ascending; under None those whose columns A holds."""
        owners = np.array([feature.owner for feature in self.features], dtype=object)
        return {owner: np.flatnonzero(owners == owner) for owner in dict.fromkeys(owners)}

    @cached_property
    def answer_widths(self) -> Mapping[str | None, NDArray[np.int64]]:
        """Bits of an answer to each of a party's inputs: one for a test, or what the number of a cell takes."""
        widths = np.array([1 if one.n_cells is None else one.n_cells.bit_length() for one in self.features], np.int64)
        return {owner: widths[inputs] for owner, inputs in self.inputs.items()}

    @cached_property
    def cell_counts(self) -> Mapping[str | None, tuple[int | None, ...]]:
        """Cells of each of a party's inputs; None for a test."""
        return {owner: tuple(self.features[i].n_cells for i in inputs) for owner, inputs in self.inputs.items()}

    @cached_property
    def columns(self) -> Mapping[Feature, int]:
        """The columns behind the features, own ones and those that owners are asked about, and their order."""
        return {column: i for i, column in enumerate(dict.fromkeys(feature.column for feature in self.features))}

    def scores(self, features: Values) -> Values:
        """Raw scores, shape ``(n_rows, n_outputs)``, of a matrix of shape ``(n_rows, n_features)``."""
        self._check(features)
        out = np.tile(self.base_scores, (len(features), 1))
        # A walk looks at a few cells of a row, however many columns there are.
        with threads_for(3 * len(features) * len(self.trees)):
            predict_scores(read_only(features), *self.flat[:-1], out)
        return out + features[:, self.offsets] if self.offsets else out

    def contributions(self, features: Values, *, in_pairs: bool = False) -> Values:
        """Shapley values of the columns for the scores of rows, shape ``(n_rows, n_outputs, n_columns + 1)``.

        They add up to the scores; the last is the mean score. All tests of a column count as one. `in_pairs` gives
        ``(n_rows, n_outputs, n_columns + 1, n_columns + 1)``, which adds up to the same.
        """
        self._check(features)
        players = np.array([self.columns[feature.column] for feature in self.features], np.int64)
        found = shapley_values(features, self.flat, players, self.base_scores, in_pairs=in_pairs)
        if self.offsets:
            found[(..., -1, -1) if in_pairs else (..., -1)] += features[:, self.offsets]
        return found

    def leaves(self, features: Values) -> Values:
        """The leaf that each row reaches in each tree, shape ``(n_rows, n_trees)``, by its place in a flat tree."""
        self._check(features)
        return self.flat.leaves(features).astype(np.float64)

    def predict(self, features: Values) -> Values:
        """Probabilities or values, as the loss defines them."""
        return self.loss.predictions(self.scores(features))

    def importance(self, kind: Literal["gain", "total_gain", "cover", "total_cover", "split"] = "gain") -> Values:
        """Importance of each feature, shape ``(n_features,)``.

        `kind` is the mean or total gain of the splits on a feature, the mean or total sum of Hessians that they divide,
        or how many there are. XGBoost calls the last one weight.
        """
        columns, gains, covers = (
            np.concatenate([getattr(tree, name)[~tree.is_leaf] for tree in self.trees] or [np.empty(0)])
            for name in ("columns", "gains", "covers")
        )
        weights = {"split": None, "gain": gains, "total_gain": gains, "cover": covers, "total_cover": covers}
        if kind not in weights:
            raise ParameterError(f"importance must be gain, total_gain, cover, total_cover or split; got {kind!r}")
        at, n = columns.astype(np.int64), len(self.features)
        counts, total = (np.bincount(at, w, n).astype(np.float64) for w in (None, weights[kind]))
        return total / np.maximum(counts, 1) if kind in ("gain", "cover") else total

    @cached_property
    def flat(self) -> FlatTrees:
        """All trees in one set of arrays."""
        return flatten(self.trees or (LEAF,) * self.loss.n_outputs, self.loss.n_outputs)

    def _check(self, features: Values) -> None:
        if features.ndim != 2 or features.shape[1] != len(self.features):
            raise DataError(f"the model has {len(self.features)} features; got an array of shape {features.shape}")
