"""Row holder with clipped contributions on an integer grid, of the records that a filter admits to a round."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from opboost.arrays import Mask, Nodes, Sums, Values
from opboost.errors import AccountError, DataError, ParameterError, check_not_negative, check_positive
from opboost.trees.binning import BinnedTable
from opboost.trees.kernels.gradients import clip_pairs, logistic_pairs
from opboost.trees.losses import GradientGrid
from opboost.trees.rows import SortedRows, add_tree
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree
from opboost.trees.walked_rows import WalkedRows

# From scores and labels to g and h of every record.
Gradients = Callable[[Values, Values], tuple[Values, Values]]

# From g and h of every record, in steps, to whether it takes part in the round.
RecordFilter = Callable[[NDArray[np.int64], NDArray[np.int64]], Mask]

# Where `opboost.trees.kernels.packing` puts the Hessian; a test compares the two.
_HESS_SHIFT = 35

# Noise has deviations below 2**28 steps: its variance is then far below the largest that Skellam noise can have.
_NOISE_BITS = 28

# Bounds of contributions lie between these, so that no square of them, or of noise, vanishes or overflows.
_LEAST_BOUND, _LARGEST_BOUND = 1e-60, 1e60


def squared_gradients(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Half the squared error: ``score - y``, and 1."""
    return scores - labels, np.ones_like(scores)


def logistic_gradients(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Cross-entropy on labels 0 and 1: ``p - y`` and ``p (1 - p)``."""
    grad, hess = np.empty_like(scores), np.empty_like(scores)
    logistic_pairs(scores, labels, grad, hess)
    return grad, hess


def counted_logistic_gradients(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Cross-entropy on labels 0 and 1, with 1 in place of the Hessian."""
    return expit(scores) - labels, np.ones_like(scores)


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """Clipping bounds of one record's contribution to sums of g and h.

    Parameters
    ----------
    max_grad, max_hess : float
        Bounds of ``|g|`` and of h, which is not negative; between 1e-60 and 1e60, like `ratio`.
    ratio : float
        Deviation of the noise on h over that on g, which makes the two comparable.
    max_norm : float, optional
        Bound of ``sqrt(g^2 + (h / ratio)^2)``; h gives way. By default what the other bounds imply.
    noise_std : float
        Deviation of the noise on sums of g; steps of 2**-28 of it are fine enough. 0 for the finest grid.
    """

    max_grad: float
    max_hess: float
    ratio: float = 1.0
    max_norm: float = math.inf
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative("noise_std", self.noise_std)
        for name in ("max_grad", "max_hess", "ratio"):
            if not _LEAST_BOUND <= check_positive(name, getattr(self, name)) <= _LARGEST_BOUND:
                raise ParameterError(
                    f"{name} must lie between {_LEAST_BOUND:g} and {_LARGEST_BOUND:g}; got {getattr(self, name)}. "
                    "Nothing was released"
                )
        implied = math.hypot(self.max_grad, self.max_hess / self.ratio)
        if not self.max_norm >= self.max_grad:
            raise ParameterError(f"max_norm must be at least max_grad; got {self.max_norm} and {self.max_grad}")
        object.__setattr__(self, "max_norm", min(self.max_norm, implied))

    @cached_property
    def grid(self) -> GradientGrid:
        """Steps of the integers."""
        finest = GradientGrid.for_bounds(self.max_grad, self.max_hess)
        if not self.noise_std:
            return finest
        scales = (
            2.0 ** math.floor(_NOISE_BITS - math.log2(std)) for std in (self.noise_std, self.noise_std * self.ratio)
        )
        grad_scale, hess_scale = scales
        return replace(
            finest, grad_scale=min(finest.grad_scale, grad_scale), hess_scale=min(finest.hess_scale, hess_scale)
        )

    def encode(self, grad: Values, hess: Values) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clip contributions and round them towards zero to the grid.

        Raises
        ------
        DataError
            If a number is missing. Nothing was released.
        """
        out = np.empty(len(grad), np.int64), np.empty(len(grad), np.int64)
        # A joint bound that the others imply is left out, so that rounding does not make it bind.
        is_joint = self.max_norm < math.hypot(self.max_grad, self.max_hess / self.ratio)
        is_finite = clip_pairs(
            grad,
            hess,
            self.max_grad,
            self.max_hess,
            self.ratio,
            self.max_norm if is_joint else math.inf,
            self.grid.grad_scale,
            self.grid.hess_scale,
            *out,
        )
        if not is_finite:
            raise DataError("a gradient is not a finite number; nothing was released")
        return out

    def norms_squared(self, grad: NDArray[np.int64], hess: NDArray[np.int64]) -> Values:
        """``g^2 + (h / ratio)^2`` of encoded contributions, rounded up and at most the largest one."""
        grid = self.grid
        g, h = grad / grid.grad_scale, hess / (grid.hess_scale * self.ratio)
        return (g * g + h * h) * (1 + 1e-14)

    @property
    def largest_steps(self) -> tuple[int, int]:
        """Bounds of an encoded record's ``|g|`` and h."""
        grid = self.grid
        return math.floor(self.max_grad * grid.grad_scale), math.floor(self.max_hess * grid.hess_scale)

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of a sum of ``(g, h / ratio)`` of encoded contributions."""
        return self.max_norm * (1 + 2e-12)


class RecordHolder:
    """Rows in this process, as a `RowHolder` of clipped integer contributions.

    Parameters
    ----------
    table : BinnedTable
    labels : ndarray of float64, shape (n_rows,)
    gradients : callable
    clipping : Clipping
    initial_score : float
    admit : callable, optional
        Called whenever gradients are computed; records that are not admitted contribute nothing. By default all are.

    Notes
    -----
    Of the trees of a round (`RowHolder.start_tree`), number 0 computes gradients and the others use them again: that is
    how the trees of a batch share theirs. With `admit` all trees are of number 0, because a record pays for one use.
    """

    _rows: SortedRows | WalkedRows

    def __init__(
        self,
        table: BinnedTable,
        labels: Values,
        *,
        gradients: Gradients,
        clipping: Clipping,
        initial_score: float | Values,
        admit: RecordFilter | None = None,
    ) -> None:
        self._table = table
        self._labels = labels
        self._gradients = gradients
        self._clipping = clipping
        self._admit = admit
        self._scores: Values = np.full(len(labels), initial_score)
        self._contributions: NDArray[np.int64] = np.zeros(table.n_rows, np.int64)
        self._rows = self._rows_of(table)

    @property
    def scores(self) -> Values:
        """Current scores of the rows; as secret as the data."""
        return self._scores

    def catch_up(self, trees: Sequence[Tree]) -> None:
        """Add the scores of these earlier trees, in bins, to rows that arrive after them."""
        for tree in trees:
            add_tree(self._scores, self._table.bins, self._table.axes, tree)

    def pay_again(self, trees: Sequence[Tree]) -> None:
        """Add the scores of trees that the rows took part in, and charge every record as it was charged then."""
        for tree in trees:
            contributions(self._gradients(self._scores, self._labels), self._clipping, self._admit)
            self.catch_up([tree])

    def rescale(self, unit: float) -> None:
        """Go on with scores in another unit."""
        self._scores /= unit

    def copied(self, *, gradients: Gradients | None = None) -> Self:
        """Independent copy of the records, with other gradients if these are given; immutable parts are shared."""
        twin = copy.copy(self)
        twin._gradients = gradients or self._gradients
        twin._scores = self._scores.copy()
        twin._rows = self._rows_with(twin._scores)
        # A filter holds the accounts of the records.
        twin._admit = copy.deepcopy(self._admit)
        return twin

    def __sizeof__(self) -> int:
        """Approximate memory of the rows, in bytes."""
        return self._table.bins.nbytes + 6 * self._scores.nbytes

    def rebin(self, table: BinnedTable) -> None:
        """Move the rows to other bins, from the next tree on; scores and gradients stay."""
        self._table, self._rows = table, self._rows_of(table)

    def start_tree(self, output: int) -> None:
        if output != 0 and self._admit is not None:
            raise AccountError("records pay for the gradients of every tree anew; nothing was released")
        self._rows.start_tree()
        if output == 0:
            self._contributions = contributions(
                self._gradients(self._scores, self._labels), self._clipping, self._admit
            )
        # A copy, since sorted rows reorder theirs.
        self._rows.gradients[:] = self._contributions

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._rows.write_histograms(nodes, out, offsets=self._table.axes.offsets)

    def totals(self, nodes: Nodes) -> Sums:
        return self._rows.totals(nodes)

    def divide(self, splits: Splits) -> None:
        self._rows.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        assert isinstance(self._rows, SortedRows)
        self._rows.finish_tree(tree, 0)

    def _rows_with(self, scores: Values) -> SortedRows | WalkedRows:
        assert isinstance(self._rows, SortedRows)
        return self._rows.copied(scores[None])

    def _rows_of(self, table: BinnedTable) -> SortedRows | WalkedRows:
        return SortedRows(table.bins, self._scores[None])


class WalkingHolder(RecordHolder):
    """Record holder for complete trees of which only leaf sums are asked for; several times faster.

    Parameters are those of `RecordHolder`.
    """

    def rebin(self, table: BinnedTable) -> None:
        """Move the rows to other bins, from the next tree on; scores and gradients stay."""
        assert isinstance(self._rows, WalkedRows)
        self._table, self._rows = table, self._rows.in_other_bins(table.bins, table.axes)

    def finish_tree(self, tree: Tree) -> None:
        assert isinstance(self._rows, WalkedRows)
        self._rows.finish_tree(tree)

    def share_walks(self, other: WalkingHolder) -> None:
        """Reuse the walks of another output's holder of the same rows and table, as long as its trees are the same."""
        assert isinstance(self._rows, WalkedRows)
        assert isinstance(other._rows, WalkedRows)
        self._rows.share_walks(other._rows)

    def _rows_with(self, scores: Values) -> WalkedRows:
        assert isinstance(self._rows, WalkedRows)
        return self._rows.copied(scores)

    def _rows_of(self, table: BinnedTable) -> WalkedRows:
        return WalkedRows(table.bins, table.axes, self._scores)


def contributions(
    gradients: tuple[Values, Values], clipping: Clipping, admit: RecordFilter | None
) -> NDArray[np.int64]:
    """Packed contribution of each record to the sums of a tree; 0 for records that are not admitted."""
    grad, hess = clipping.encode(*gradients)
    packed = (hess << _HESS_SHIFT) + grad
    if admit is None:
        return packed
    is_admitted = admit(grad, hess)
    return packed if is_admitted.all() else np.where(is_admitted, packed, 0)
