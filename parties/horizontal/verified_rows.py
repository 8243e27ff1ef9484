"""Verification of a coordinator's messages: the only place between them and a worker's rows.

The worker keeps its own copy of every tree that is being grown. It takes from a message only which nodes split, on
which column and at which cut, and the values of the leaves. Numbers of children, tables of bins and finished trees are
derived here. A message is checked as a whole before the rows hear of it, so one that is refused changes nothing.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Nodes, Sums
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.client_rows import PlacedHolder
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.tree_rules import TreeRules
from opboost.rng import BitSource
from opboost.trees.complete import Cuts, RandomRule, splits_of, tree_of
from opboost.trees.holder import RowHolder
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree
from parties.horizontal.answered_questions import Answered, AnsweredQuestions, history_with
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import Divide, FinishTree, Place, StartTree, WantHistograms, WantTotals


class WorkerRecipe(Protocol):
    """Interface of a recipe for a worker."""

    @property
    def task(self) -> PublicTask:
        """The public task, whose grid has the initial cells."""

    @property
    def tree_rules(self) -> TreeRules:
        """Bounds on trees and on questions about them."""

    def public_rule(self, bits: BitSource) -> RandomRule | None:
        """The rule that draws all splits from public bits; None if the coordinator chooses them."""


@dataclass(slots=True)
class _Growing:
    """A tree that is being grown, with the grid that it is grown on.

    Attributes
    ----------
    columns : PublicGrid
    drawn : list of Splits or None
        All levels, where public bits give them.
    levels : list of Splits
    first, n_nodes : int
        The nodes of the newest level are ``first .. n_nodes - 1``.
    """

    columns: PublicGrid
    drawn: list[Splits] | None
    levels: list[Splits] = field(default_factory=list)
    first: int = 0
    n_nodes: int = 1

    @property
    def is_leaf(self) -> Mask:
        """Mask of the nodes without a split, shape ``(n_nodes,)``."""
        is_leaf = np.ones(self.n_nodes, np.bool_)
        for level in self.levels:
            is_leaf[level.nodes] = False
        return is_leaf


class VerifiedRows:
    """A worker's rows behind checks of every message.

    Parameters
    ----------
    rows : RowHolder
        Answers the questions that the recipe allows.
    recipe : WorkerRecipe
    shape_bits : BitSource
        The public random bits.
    answered : Answered
        By earlier processes of this worker, whose coins and noise are those of `rows`.
    drawing : bytes
        Digest of the drawing of the public bits.

    Attributes
    ----------
    n_started : int
        Number of trees that were begun.
    asked : AnsweredQuestions
        The questions of this process, and those that were answered.

    Notes
    -----
    Privacy: the answers are those of `rows`, and no question has two. Refusals depend on messages, never on the data.

    All methods raise `UnexpectedMessage` for what the recipe does not allow; the privacy accounting of `rows` may raise
    `AccountError`. Nothing was changed then.
    """

    def __init__(
        self, rows: RowHolder, recipe: WorkerRecipe, *, shape_bits: BitSource, answered: Answered, drawing: bytes = b""
    ) -> None:
        self._rows = rows
        self._columns = recipe.task.grid
        self._rules = recipe.tree_rules
        self._public = recipe.public_rule(shape_bits)
        self._growing: deque[_Growing] = deque()
        self._is_open = self._may_move = False
        self._history = hashlib.sha256(drawing)
        self.asked = AnsweredQuestions(answered, batch_size=recipe.tree_rules.batch_size)
        self.n_started = 0

    def start_tree(self, message: StartTree) -> None:
        """Start a tree, for the output whose turn it is."""
        rules, number = self._rules, self.n_started
        if message.output != number % rules.batch_size:
            raise UnexpectedMessage(
                f"tree {number + 1} is for the output {number % rules.batch_size} and not {message.output}: it was "
                "begun out of its turn; nothing was sent"
            )
        if self._growing and (message.output == 0 or not rules.is_complete):
            raise UnexpectedMessage("a tree was begun before the one before it was finished; nothing was sent")
        history = history_with(self._history, message)
        now = self.asked.begun(history.hexdigest())
        self._rows.start_tree(message.output)
        self.asked.now = now
        self._history = history
        self._growing.append(_Growing(self._columns, self._drawn()))
        self.n_started += 1
        self._is_open, self._may_move = True, number < rules.n_placements

    def divide(self, message: Divide) -> None:
        """Split one or several further levels of the newest tree."""
        newest = self._newest("a split")
        parts: tuple[NDArray[Any], ...] = message.nodes, message.columns, message.cuts, message.missing_left
        levels, room = message.levels, self._rules.max_depth - len(newest.levels)
        if not 0 < len(levels) <= room or (levels < 1).any() or any(len(part) != levels.sum() for part in parts):
            raise UnexpectedMessage(
                f"splits do not fit their levels, or these are more than {self._rules.max_depth} in all; "
                "nothing was sent"
            )
        grown = replace(newest, levels=list(newest.levels))
        for begin, end in zip(np.cumsum(levels) - levels, np.cumsum(levels), strict=True):
            # Copies: a message's own arrays cannot be written to, for which each loop would be compiled anew.
            nodes, columns, cuts, missing_left = (part[begin:end].copy() for part in parts)
            self._grow(grown, nodes, Cuts(columns, cuts, missing_left))
        for level in grown.levels[len(newest.levels) :]:
            self._rows.divide(level)
        self._growing[-1], self._history = grown, history_with(self._history, message)

    def answer(self, question: WantTotals | WantHistograms) -> Sums:
        """Answer a question: sums, or histograms, of leaves of the newest tree."""
        newest, nodes = self._newest("a question"), question.nodes
        most = self._rules.n_histogram_nodes if isinstance(question, WantHistograms) else newest.n_nodes
        if not 0 < len(nodes) <= most:
            raise UnexpectedMessage(
                f"{question.kind!r} of {len(nodes)} nodes at once is no question of this recipe; nothing was sent"
            )
        if not _is_ascending(nodes, 0, newest.n_nodes) or not newest.is_leaf[nodes].all():
            raise UnexpectedMessage("sums were asked of nodes that the tree does not have as leaves; nothing was sent")
        now = self.asked.asked(history_with(self._history, question).hexdigest())
        if isinstance(question, WantTotals):
            out = self._rows.totals(nodes)
        else:
            out = np.empty((len(nodes), 2, self._columns.axes.n_bins), np.int64)
            self._rows.write_histograms(nodes, out)
        self.asked.now = now
        return out

    def place(self, message: Place) -> None:
        """Move the cells, from the next tree on; the newest tree then grows no further."""
        if not self._may_move or not isinstance(self._rows, PlacedHolder):
            raise UnexpectedMessage("the cells of this recipe stay where they are now; nothing was sent")
        if self._growing and not self._rules.is_complete:
            raise UnexpectedMessage("cells were moved before the tree was finished; nothing was sent")
        cuts, shape = message.cuts, (len(self._columns.bounds), self._columns.n_cells - 1)
        if cuts.shape != shape or not np.isfinite(cuts).all() or not (cuts[:, 1:] >= cuts[:, :-1]).all():
            raise UnexpectedMessage(f"new cells need {shape[1]} ascending cuts for each of {shape[0]} columns")
        columns = replace(self._columns, given=tuple(cuts))
        self._rows.place(columns)
        self._columns, self._history = columns, history_with(self._history, message)
        self._is_open = self._may_move = False

    def finish_tree(self, message: FinishTree) -> Tree:
        """Add the leaves' values to the scores; returns the oldest tree that is being grown, on values."""
        if not self._growing:
            raise UnexpectedMessage("a finished tree came where no tree is grown; nothing was sent")
        oldest, values = self._growing[0], message.values
        is_leaf = oldest.is_leaf
        if len(values) != is_leaf.sum() or not (np.abs(values) <= self._rules.max_value).all():
            raise UnexpectedMessage(
                f"a finished tree needs {is_leaf.sum()} values of leaves, each at most {self._rules.max_value:.6g}; "
                "nothing was sent"
            )
        of_nodes = np.zeros(oldest.n_nodes)
        of_nodes[is_leaf] = values
        tree = tree_of(oldest.levels, of_nodes, oldest.columns.axes)
        on_values = oldest.columns.in_values(tree)
        self._rows.finish_tree(tree)
        self._growing.popleft()
        self._is_open, self._history = False, history_with(self._history, message)
        return on_values

    def _newest(self, what: str) -> _Growing:
        if not self._is_open:
            raise UnexpectedMessage(f"{what} came where no tree is grown; nothing was sent")
        return self._growing[-1]

    def _grow(self, tree: _Growing, nodes: Nodes, chosen: Cuts) -> None:
        """Check a level and add it to a tree."""
        axes, columns, cuts = self._columns.axes, chosen.columns, chosen.cuts
        is_part = _is_ascending(nodes, tree.first, tree.n_nodes)
        if not is_part or (self._rules.is_complete and len(nodes) < tree.n_nodes - tree.first):
            raise UnexpectedMessage("splits of nodes that are not the newest level; nothing was sent")
        if (columns < 0).any() or (columns >= axes.n_columns).any():
            raise UnexpectedMessage(f"a split on a column that is not one of {axes.n_columns}; nothing was sent")
        # A cut lies between two cells; of categories one is parted from the others.
        n_cuts = axes.sizes[columns] - 2 + axes.is_categorical[columns]
        if (cuts < 0).any() or (cuts >= n_cuts).any():
            raise UnexpectedMessage("a split at a cut that its column does not have; nothing was sent")
        splits = splits_of(nodes, chosen, axes, first_child=tree.n_nodes)
        if tree.drawn is not None and not _is_same(splits, tree.drawn[len(tree.levels)]):
            raise UnexpectedMessage("a split is not the one that the public random bits give; nothing was sent")
        tree.levels.append(splits)
        tree.first, tree.n_nodes = tree.n_nodes, tree.n_nodes + 2 * len(nodes)

    def _drawn(self) -> list[Splits] | None:
        """All levels of the next tree, where public bits give them."""
        if self._public is None:
            return None
        self._public.start_tree()
        firsts = [2**depth - 1 for depth in range(self._rules.max_depth)]
        levels = [np.arange(first, 2 * first + 1, dtype=np.int32) for first in firsts]
        return [
            splits_of(nodes, self._public.choose(nodes, self._rows), self._columns.axes, first_child=2 * first + 1)
            for nodes, first in zip(levels, firsts, strict=True)
        ]


def _is_ascending(nodes: Nodes, first: int, end: int) -> bool:
    """Whether nodes are in ``first .. end - 1``, each once, in order."""
    return bool(first <= nodes.min() and nodes.max() < end and (nodes[1:] > nodes[:-1]).all())


def _is_same(first: Splits, second: Splits) -> bool:
    """Whether two lists of splits of the same nodes are one."""
    return all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("columns", "cuts", "missing_left")
    )
