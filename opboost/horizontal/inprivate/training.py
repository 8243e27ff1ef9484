"""InPrivate Digging (Zhao et al., INFOCOM 2018): a chain of owners, each adding private trees to those received.

Owners take turns in a fixed order; the trees are public and go along the chain. A turn trains one tree on residuals of
some of the owner's records: round r uses half of those that no round used before, by a coin of each record's own, so
that a record is in one tree at most and every tree may spend all of epsilon: one half on its levels of splits, in equal
parts, the other on its leaves' sums and denominators.

Here all owners are in one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from opboost.arrays import Mask, Nodes, Sums, Values
from opboost.errors import ParameterError
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.noise.noisy_holder import NoisyHolder, laplace_noise, laplace_release
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Gradients, RecordHolder, squared_gradients
from opboost.horizontal.splits.exponential_splits import gain_range
from opboost.horizontal.splits.gridless import GridlessColumns, GridlessRule, PointTable, exponential_rule
from opboost.privacy.coins import Deal
from opboost.privacy.releases import Release, SelectionRelease, SharedByCoins
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import BitSource
from opboost.trees.complete import grow_complete_tree
from opboost.trees.holder import SummedHolders
from opboost.trees.tree import Tree


def boosted_residuals(scores: Values, labels: Values) -> tuple[Values, Values]:
    """For labels 0 and 1 and ``p = 1 / (1 + exp(-2 f))``: minus the residual, ``2 (p - y)``, and ``4 p (1 - p)``."""
    p = expit(2 * scores)
    return 2 * (p - labels), 4 * p * (1 - p)


def releases(settings: InPrivateSettings, epsilon: float) -> tuple[Release, ...]:
    """Releases of one owner: one tree per record. Owners' records are disjoint by ownership, which is public."""
    grid, share = settings.clipping.grid, settings.leaf_epsilon(epsilon)
    leaves = (
        laplace_release(settings.max_residual, share, grid.grad_scale),
        laplace_release(1.0, share, grid.hess_scale),
    )
    tree: tuple[Release, ...] = leaves
    if settings.max_depth:
        tree = (SelectionRelease(epsilon=settings.split_epsilon(epsilon), count=settings.max_depth), *leaves)
    return (SharedByCoins(coins=settings.coins, parts=(tree,) * settings.n_rounds),)


class Owner:
    """A chain owner with its records.

    Parameters
    ----------
    rows : ndarray of float64, shape (n_rows, n_columns)
    labels : ndarray of float64, shape (n_rows,)
        In [-1, 1], or 0 and 1 for classes.
    columns : PublicGrid or GridlessColumns
        The candidates of the splits; released trees are in bins of the grid, or in points.
    settings : InPrivateSettings
    gradients : callable
        `squared_gradients` or `boosted_residuals`.
    rng : BitSource
    coins : BitSource, optional
        For the records' coins, in place of a part of `rng`: an owner that comes back in another process must use the
        same ones, or a record could be in two trees.
    initial_score : float
        Where all scores begin.
    is_by_turn : bool
        Whether a turn's choices and noise come from a stream of their own: an owner that comes back in another process
        with the same bits draws the same tree.
    """

    def __init__(
        self,
        rows: Values,
        labels: Values,
        columns: PublicGrid | GridlessColumns,
        settings: InPrivateSettings,
        *,
        gradients: Gradients,
        rng: BitSource,
        coins: BitSource | None = None,
        initial_score: float = 0.0,
        is_by_turn: bool = False,
    ) -> None:
        self._settings = settings
        self._labels = labels
        self._is_regression = gradients is squared_gradients
        self._n_turns, self._by_turn = 0, rng if is_by_turn else None
        self._draws = {name: rng.fork(name) for name in ("splits", "leaves")}
        self._deal: Deal = settings.coins.deal(len(labels), rng=coins or rng.fork("coins"))
        self._is_admitted: Mask = np.zeros(len(labels), np.bool_)
        self._placed = columns.place(rows)
        table = self._table = self._placed.table if isinstance(self._placed, PointTable) else self._placed

        def holder(rule: Gradients) -> RecordHolder:
            return RecordHolder(
                table,
                labels,
                gradients=rule,
                clipping=settings.clipping,
                initial_score=initial_score,
                admit=self._admit,
            )

        def counted(scores: Values, truth: Values) -> tuple[Values, Values]:
            return gradients(scores, truth)[0], np.ones_like(scores)

        leaves = holder(gradients)
        self._holders = _Holders(leaves if gradients is squared_gradients else holder(counted), leaves)

    def receive(self, tree: Tree) -> None:
        """Update the residuals with a tree of another owner."""
        self._holders.catch_up([self._placed.in_bins(tree) if isinstance(self._placed, PointTable) else tree])

    def take_back(self, tree: Tree) -> None:
        """Replay a turn that gave this tree in an earlier process: the same coins mark its records as used."""
        self._deal.next_part()
        self._n_turns += 1
        self.receive(tree)

    def take_turn(self, epsilon: float) -> Tree:
        """Train one tree on the records of the next round.

        Notes
        -----
        Privacy: `epsilon` for the records of the round, nothing for the others.
        """
        settings, grid = self._settings, self._settings.clipping.grid
        self._is_admitted[:] = False
        self._is_admitted[self._deal.next_part()] = True
        share = settings.leaf_epsilon(epsilon)
        self._n_turns += 1
        if self._by_turn is not None:
            self._draws = {name: self._by_turn.fork(f"{name} {self._n_turns}") for name in self._draws}
        noisy = NoisyHolder(
            self._holders,
            noises=(
                laplace_noise(settings.max_residual, share, grid.grad_scale),
                laplace_noise(1.0, share, grid.hess_scale),
            ),
            n_trees=1,
            rng=self._draws["leaves"],
        )
        mechanism = ExponentialMechanism(
            epsilon=settings.split_epsilon(epsilon),
            utility_range=settings.utility_range or gain_range(settings.max_residual),
        )
        rule = exponential_rule(
            self._placed, grid, reg_lambda=0.0, mechanism=mechanism, holder=self._holders, rng=self._draws["splits"]
        )
        floor = max(settings.reg_lambda, settings.noise_lambda / share, math.ulp(1.0))

        def leaf_values(totals: Sums) -> Values:
            values = -totals[:, 0] / grid.grad_scale / np.maximum(totals[:, 1] / grid.hess_scale, floor)
            return settings.learning_rate * np.clip(values, -settings.max_residual, settings.max_residual)

        noisy.start_tree(0)
        tree = grow_complete_tree(
            noisy, rule=rule, leaf_values=leaf_values, axes=self._table.axes, depth=settings.max_depth
        )
        noisy.finish_tree(tree)
        return rule.in_points(tree) if isinstance(rule, GridlessRule) else tree

    def mean_error(self) -> float:
        """Error of the trees so far on the owner's records: mean absolute error, or share of wrong classes.

        Notes
        -----
        Privacy: none, it is the plain number. Only the publication's stop rule asks for it.
        """
        scores = self._holders.scores
        if self._is_regression:
            return float(np.abs(self._labels - scores).mean()) if len(scores) else 0.0
        return float(((scores > 0) != (self._labels > 0.5)).mean()) if len(scores) else 0.0

    @property
    def n_records(self) -> int:
        return len(self._labels)

    def _admit(self, grad: NDArray[np.int64], hess: NDArray[np.int64]) -> Mask:
        return self._is_admitted


def run_chain(
    owners: Sequence[Owner], *, n_rounds: int, epsilon: float, least_advance: float | None = None
) -> list[Tree]:
    """Run the chain: owners take turns in order, and each tree reaches all others before the next turn.

    Parameters
    ----------
    owners : sequence of Owner
    n_rounds : int
        A fixed number; at most so many with a least advance.
    epsilon : float
    least_advance : float, optional
        The publication's stop rule: end when a round lowers the error on all records by less than this.

    Notes
    -----
    Privacy: `epsilon` for every record without a least advance. With one, the number of trees depends on an error on
    private data that is not accounted for, and nothing is promised.
    """
    trees: list[Tree] = []
    error = _mean_error(owners) if least_advance is not None else 0.0
    for _ in range(n_rounds):
        for owner in owners:
            trees.append(owner.take_turn(epsilon))
            for other in owners:
                if other is not owner:
                    other.receive(trees[-1])
        if least_advance is not None:
            earlier_error, error = error, _mean_error(owners)
            if earlier_error - error < least_advance:
                break
    return trees


def _mean_error(owners: Sequence[Owner]) -> float:
    n_records = max(sum(owner.n_records for owner in owners), 1)
    return sum(owner.mean_error() * owner.n_records for owner in owners) / n_records


def messages_of_round(n_owners: int, *, broadcast: bool) -> tuple[int, int]:
    """Messages of a round, and how many trees' residuals the chain waits for.

    Passing all trees along takes ``n - 1`` messages, and every owner works through all trees before its own turn:
    ``n (n - 1) / 2`` in sequence. An owner that sends its tree to all later ones at once makes ``n (n - 1) / 2``
    messages, and these work while others train, so that the chain waits for ``n - 1``.
    """
    if n_owners < 1:
        raise ParameterError(f"a chain needs at least one owner; got {n_owners}")
    n_links, n_pairs = n_owners - 1, n_owners * (n_owners - 1) // 2
    return (n_pairs, n_links) if broadcast else (n_links, n_pairs)


class _Holders(SummedHolders):
    """Two holders of the same rows: one whose h are counts, for splits, and one for the leaves."""

    def __init__(self, splits: RecordHolder, leaves: RecordHolder) -> None:
        super().__init__([leaves] if splits is leaves else [splits, leaves])
        self._splits = splits
        self._leaves = leaves

    @property
    def scores(self) -> Values:
        return self._leaves.scores

    def catch_up(self, trees: Sequence[Tree]) -> None:
        for holder in {self._splits, self._leaves}:
            holder.catch_up(trees)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._splits.write_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        return self._leaves.totals(nodes)
