"""Shape functions: the contribution of each column to the score, for models whose trees use one column each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from opboost.arrays import Values
from opboost.errors import ParameterError
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Plots per line of a figure, and inches of each.
_PER_LINE, _WIDTH, _HEIGHT = 3, 3.6, 2.6


@dataclass(frozen=True, slots=True)
class ShapeFunction:
    """A step function of one column.

    Attributes
    ----------
    edges : ndarray of float64, shape (n_edges,)
        Ascending. A value on an edge belongs to the step before it.
    values : ndarray of float64, shape (n_edges + 1,)
        What the steps add to the score.
    missing : float
        What a missing cell adds.
    """

    edges: Values
    values: Values
    missing: float

    def __call__(self, cells: Values) -> Values:
        """Contribution of cells to the score, in an array of their shape."""
        steps = self.values[np.searchsorted(self.edges, cells, side="left")]
        return np.where(np.isnan(cells), self.missing, steps)


@dataclass(frozen=True, slots=True)
class Shapes:
    """Additive model: an intercept and one step function per column.

    Attributes
    ----------
    intercept : float
    columns : mapping of str to ShapeFunction
        Columns that no tree uses have a single step of 0.
    """

    intercept: float
    columns: Mapping[str, ShapeFunction]

    def plot(self, columns: Sequence[str] | None = None) -> Figure:
        """A figure of the step functions of some columns, of all by default; ``savefig`` writes it to a file."""
        # Takes most of a second to import, and only plots need it.
        from matplotlib.figure import Figure

        names = list(self.columns) if columns is None else list(columns)
        unknown = [name for name in names if name not in self.columns]
        if unknown or not names:
            raise ParameterError(f"there is no column {', '.join(unknown)}; there are {', '.join(self.columns)}")
        n_lines = -(-len(names) // _PER_LINE)
        figure = Figure(figsize=(_WIDTH * min(len(names), _PER_LINE), _HEIGHT * n_lines), layout="constrained")
        for place, name in enumerate(names):
            shape, axes = self.columns[name], figure.add_subplot(n_lines, min(len(names), _PER_LINE), place + 1)
            axes.stairs(shape.values, _ends(shape.edges), baseline=None)
            axes.axhline(0.0, linewidth=0.5, color="grey")
            axes.set_title(name, fontsize="medium", parse_math=False)
        return figure


def shapes_of(model: Ensemble) -> Shapes:
    """Shape functions of a model with one output whose trees use at most one column each.

    Raises
    ------
    ParameterError
        If a tree uses several columns: what one of them adds then depends on the others.
    """
    if model.loss.n_outputs != 1:
        raise ParameterError(f"a shape function is of one score; the model has {model.loss.n_outputs}")
    intercept = float(model.base_scores[0])
    by_column: dict[int, list[Tree]] = {column: [] for column in range(len(model.features))}
    for tree in model.trees:
        used = np.unique(tree.columns[~tree.is_leaf])
        if len(used) > 1:
            raise ParameterError(
                "a tree uses several columns; shape functions are of models with one column per tree "
                "(interaction='cyclical', columns_per_tree=1)"
            )
        if len(used):
            by_column[int(used[0])].append(tree)
        else:
            intercept += float(tree.values[0])
    named = zip(model.features, by_column.items(), strict=True)
    return Shapes(intercept, {feature.name: _shape(model, column, trees) for feature, (column, trees) in named})


def _shape(model: Ensemble, column: int, trees: Sequence[Tree]) -> ShapeFunction:
    if not trees:
        return ShapeFunction(np.empty(0), np.zeros(1), 0.0)
    edges = np.unique(np.concatenate([tree.thresholds[~tree.is_leaf] for tree in trees]))
    rows = np.zeros((len(edges) + 2, len(model.features)))
    rows[:, column] = [*edges, np.inf, np.nan]
    scores = Ensemble(tuple(trees), np.zeros(1), SquaredError(), model.features).scores(rows)[:, 0]
    return ShapeFunction(edges, scores[:-1], float(scores[-1]))


def _ends(edges: Values) -> Values:
    """Edges with ends for the outer steps, which have none."""
    if len(edges) == 0:
        return np.array([0.0, 1.0])
    room = max(float(edges[-1] - edges[0]), 1.0) / 20
    return np.concatenate([[edges[0] - room], edges, [edges[-1] + room]])
