"""Monotone and interaction constraints: allowed columns and bounds of leaf values per node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Nodes, Values
from opboost.errors import ParameterError, nearest


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Allowed columns and value bounds of several nodes.

    Attributes
    ----------
    lower, upper : ndarray of float64, shape (n_nodes,) or (1,)
        Bounds of the leaf values below each node; one number if it is the same for all nodes.
    allowed : ndarray of bool, shape (n_nodes, n_columns) or (1, n_columns)
        Columns to split on; one row if it is the same for all nodes.
    path : ndarray of bool, shape (n_nodes, n_columns) or (1, n_columns)
        Columns that the way to each node has split on; one row if nobody asks.
    """

    lower: Values
    upper: Values
    allowed: Mask
    path: Mask

    def of(self, nodes: NDArray[np.intp]) -> NodeLimits:
        """The limits of some of the nodes."""
        if len(self.lower) == len(self.upper) == len(self.allowed) == len(self.path) == 1:
            return self
        lower, upper = (each if len(each) == 1 else each[nodes] for each in (self.lower, self.upper))
        allowed, path = (each if len(each) == 1 else each[nodes] for each in (self.allowed, self.path))
        return NodeLimits(lower, upper, allowed, path)


@dataclass(frozen=True)
class Constraints:
    """Constraints on a model, as in XGBoost.

    Attributes
    ----------
    monotone : ndarray of int8, shape (n_columns,)
        1 where predictions may not fall as the column rises, -1 where they may not rise, 0 elsewhere.
    groups : ndarray of bool, shape (n_groups, n_columns)
        Columns that may meet on one way from the root to a leaf; without a group, all may. A column in no group
        meets none but itself.
    max_delta_step : float
        Bound of the leaves' magnitude; 0 for none.
    """

    monotone: NDArray[np.int8]
    groups: Mask
    max_delta_step: float = 0.0

    @classmethod
    def none(cls, n_columns: int) -> Constraints:
        """No constraints on so many columns."""
        return cls(np.zeros(n_columns, np.int8), np.empty((0, n_columns), np.bool_))

    @cached_property
    def is_bounded(self) -> bool:
        """True if leaf values have bounds."""
        return bool(self.monotone.any()) or self.max_delta_step > 0

    @cached_property
    def change_below(self) -> bool:
        """True if limits of children can differ from those of their parents."""
        return bool(self.monotone.any()) or len(self.groups) > 0

    def at_root(self, columns: NDArray[np.int64]) -> NodeLimits:
        """The limits of a root that may split on these columns."""
        allowed = np.zeros((1, len(self.monotone)), dtype=np.bool_)
        allowed[0, columns] = True
        bound = self.max_delta_step or np.inf
        return NodeLimits(np.array([-bound]), np.array([bound]), allowed, np.zeros_like(allowed))

    def at_children(
        self, limits: NodeLimits, columns: Nodes, left: Values, right: Values, at_root: NodeLimits
    ) -> NodeLimits:
        """Limits of the left children and then of the right ones.

        Parameters
        ----------
        limits : NodeLimits
            Of the parents.
        columns : ndarray of int, shape (n_parents,)
            The columns they split on.
        left, right : ndarray of float64, shape (n_parents,)
            What the children would be worth as leaves.
        at_root : NodeLimits
            Of the tree's root.
        """
        lower, upper = limits.lower, limits.upper
        if self.monotone.any():
            lower, upper = self._bounds(limits, columns, left, right)
        if not len(self.groups):
            return NodeLimits(lower, upper, limits.allowed, limits.path)
        n = len(columns)
        path = np.broadcast_to(limits.path, (n, len(self.monotone))).copy()
        path[np.arange(n), columns] = True
        # A group admits its columns to a node if it holds every column on the way there.
        admits: Mask = ~np.any(path[:, None, :] & ~self.groups[None, :, :], axis=2)
        allowed = (path | (admits[:, :, None] & self.groups[None, :, :]).any(axis=1)) & at_root.allowed
        return NodeLimits(lower, upper, np.concatenate([allowed, allowed]), np.concatenate([path, path]))

    def _bounds(self, limits: NodeLimits, columns: Nodes, left: Values, right: Values) -> tuple[Values, Values]:
        """Bounds of the left children and then of the right ones: a point midway between two siblings parts them."""
        middle, direction = (left + right) / 2, self.monotone[columns]
        lower, upper = (np.broadcast_to(each, len(columns)) for each in (limits.lower, limits.upper))
        rises, falls = direction > 0, direction < 0
        return (
            np.concatenate([np.where(falls, middle, lower), np.where(rises, middle, lower)]),
            np.concatenate([np.where(rises, middle, upper), np.where(falls, middle, upper)]),
        )


@dataclass(frozen=True, slots=True)
class ColumnConstraints:
    """Constraints by column name, as in XGBoost.

    Attributes
    ----------
    monotone : mapping of str to int
        1 where predictions may not fall as a column rises, -1 where they may not rise.
    interactions : sequence of sequences of str
        Groups of columns that may meet on one way through a tree; without any, all may.
    """

    monotone: Mapping[str, int] = field(default_factory=dict)
    interactions: Sequence[Sequence[str]] = ()

    def among(self, names: Collection[str]) -> ColumnConstraints:
        """The constraints on some of the columns."""
        return ColumnConstraints(
            {name: direction for name, direction in self.monotone.items() if name in names},
            [[name for name in group if name in names] for group in self.interactions],
        )

    def on(self, names: Sequence[str], *, are_categorical: Sequence[bool], max_delta_step: float) -> Constraints:
        """The same by position.

        Raises
        ------
        ParameterError
            If a name is unknown, or a column of categories is to be monotone.
        """
        position = {name: i for i, name in enumerate(names)}
        mentioned = {name for group in (self.monotone, *self.interactions) for name in group}
        if unknown := mentioned - position.keys():
            near = nearest(sorted(unknown), names)
            raise ParameterError(f"constraints name columns that do not exist: {', '.join(sorted(unknown))}{near}")
        if ambiguous := {name for name in mentioned if list(names).count(name) > 1}:
            raise ParameterError(f"constraints name what several columns are called: {', '.join(sorted(ambiguous))}")
        monotone = np.zeros(len(names), dtype=np.int8)
        for name, direction in self.monotone.items():
            if direction not in (-1, 0, 1):
                raise ParameterError(f"the monotone constraint of {name!r} must be -1, 0 or 1; got {direction!r}")
            if direction and are_categorical[position[name]]:
                raise ParameterError(f"column {name!r} holds categories, which have no order to be monotone in")
            monotone[position[name]] = direction
        groups = np.zeros((len(self.interactions), len(names)), dtype=np.bool_)
        for group, members in zip(groups, self.interactions, strict=True):
            group[[position[name] for name in members]] = True
        return Constraints(monotone, groups, max_delta_step)
