"""Random trees on all columns whose leaves hold noisy counts of the classes.

Trees that look at no sums need none before the last level (random decision trees: Jagannathan, Pillaipakkamnatt and
Wright, 2009), and a record is in one leaf of a tree and of one class. What a leaf says of a class, the logarithm of its
share there over its share of all records, is evidence; trees add theirs up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from opboost.arrays import Values
from opboost.horizontal.recommended.first_releases import MAX_SCORE
from opboost.horizontal.recommended.tree_sizes import TreeSizes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.complete import RandomRule, Uniforms, grow_complete_shape
from opboost.trees.holder import RowHolder
from opboost.trees.tree import Tree

# A leaf's shares are drawn towards those of all records, as if so many scales of the noise were records of each class,
# and one record at least. The scale of Gaussian noise is that of Laplace noise of the same deviation.
_PRIOR_SCALES = 0.5

# Trees are not independent: all together count as so many, times the binary logarithm of the number of classes, but for
# no more than half of them.
_INDEPENDENT_TREES = 4.0


class JointHolder(RowHolder, Protocol):
    """Row holder that answers for all outputs, whose trees share one structure."""

    def finish_trees(self, trees: Sequence[Tree]) -> None:
        """Add the leaves' values, one tree per output."""

    def tighten(self, factor: float) -> None:
        """Multiply the bound of numbers' gradients, the unit of everything, from the next tree on."""


def grow_counted(
    noisy: RowHolder,
    exact: JointHolder,
    *,
    columns: PublicGrid,
    shares: Values,
    sizes: TreeSizes,
    std: float,
    steps: float,
    uniforms: Uniforms,
) -> list[list[Tree]]:
    """Grow trees on values, round by round one per class, whose leaves hold evidence of it.

    Parameters
    ----------
    noisy : RowHolder
        Its sums of leaves are noisy counts, in steps.
    exact : JointHolder
        Under it; gets the finished trees.
    columns : PublicGrid
    shares : ndarray of float64, shape (n_classes,)
        Of all records, and positive.
    sizes : TreeSizes
    std : float
        Deviation of the noise on a count; 0 for none.
    steps : float
        Of a record.
    uniforms : callable

    Notes
    -----
    Privacy: one release per tree, of which a record moves one number, by 1; splits do not depend on the records.
    """
    (n_trees, depth), n_classes = sizes, len(shares)
    prior = max(_PRIOR_SCALES * std / math.sqrt(2) * n_classes, 1.0)
    weight = min(_INDEPENDENT_TREES * math.log2(n_classes), n_trees / 2) / max(n_trees, 1)
    rule, rounds = RandomRule(columns.axes, uniforms=uniforms), []
    for _ in range(n_trees):
        noisy.start_tree(0)
        shape = grow_complete_shape(noisy, rule=rule, axes=columns.axes, depth=depth)
        counts = noisy.totals(shape.leaves)[:, 0].reshape(n_classes, -1) / steps
        evidence = weight * evidence_of(np.maximum(counts, 0.0), shares[:, None], prior)
        grown = [shape.with_leaf_values(own) for own in np.clip(evidence, -MAX_SCORE, MAX_SCORE)]
        exact.finish_trees(grown)
        rounds.append([columns.in_values(tree) for tree in grown])
    return rounds


def evidence_of(counts: Values, shares: Values, prior: float) -> Values:
    """Logarithm of each class's share in a leaf over its share of all records; `prior` records have those shares."""
    return np.log((counts + prior * shares) / (counts.sum(axis=0) + prior)) - np.log(shares)
