"""Row holder that adds noise after aggregation, and releases no more answers than its account covers."""

from __future__ import annotations

import math

import numpy as np

from opboost.arrays import Mask, Nodes, Sums
from opboost.errors import AccountError
from opboost.privacy.additive import DiscreteLaplace, Noise, RoundedGaussian
from opboost.privacy.releases import LaplaceRelease
from opboost.rng import BitSource
from opboost.trees.holder import ForwardingHolder, RowHolder
from opboost.trees.splitting import Splits


class NoisyHolder(ForwardingHolder):
    """Answers one question per tree, for the sums of (g, h) in nodes that share no row, with noise.

    Parameters
    ----------
    holder : RowHolder
        Whose answers are exact: rows here, or the sum of several holders.
    noises : pair of Noise or None
        On the integer sums of g and of h; None for no noise.
    n_trees : int
        Trees that the account was made for. The next one is refused.
    rng : BitSource
    is_by_tree : bool
        Whether a tree's noise comes from a stream of its own, so that it does not depend on which trees before it were
        asked about: a holder that is made again from the same key answers the same.

    Notes
    -----
    Privacy: one record is in one of the nodes, so an answer is a query of the sensitivity of one record's (g, h), and
    `n_trees` of them follow each other. Histograms are not in the account and are refused.
    """

    def __init__(
        self,
        holder: RowHolder,
        *,
        noises: tuple[Noise | None, Noise | None],
        n_trees: int,
        rng: BitSource,
        is_by_tree: bool = False,
    ) -> None:
        super().__init__(holder)
        self._noises = noises
        self._n_left = n_trees
        self._may_ask = False
        self._is_split: Mask = np.zeros(1, np.bool_)
        self._rng, self._is_by_tree = rng, is_by_tree

    def start_tree(self, output: int) -> None:
        if self._n_left == 0:
            raise AccountError("the account was made for the trees before this one; nothing was released")
        self._n_left -= 1
        self._may_ask = True
        self._is_split = np.zeros(1, np.bool_)
        super().start_tree(output)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        raise AccountError("histograms are not in the account of this holder; nothing was released")

    def totals(self, nodes: Nodes) -> Sums:
        if not self._may_ask:
            raise AccountError("the sums of this tree were released before; nothing was released again")
        if len(np.unique(nodes)) < len(nodes) or self._is_split[nodes].any():
            raise AccountError("sums are released of nodes without a common row only; nothing was released")
        self._may_ask = False
        totals = super().totals(nodes)
        rng = self._rng.fork(f"{self._n_left} trees left") if self._is_by_tree else self._rng
        for column, noise in enumerate(self._noises):
            if noise is not None:
                totals[:, column] += noise.draw(len(totals), rng=rng)
        return totals

    def divide(self, splits: Splits) -> None:
        if not self._may_ask:
            raise AccountError("a tree whose sums were released does not split further")
        is_split = np.zeros(int(splits.rights[-1]) + 1, np.bool_)
        is_split[: len(self._is_split)] = self._is_split
        is_split[splits.nodes] = True
        self._is_split = is_split
        super().divide(splits)


def gaussian_noise(std: float, scale: float) -> RoundedGaussian | None:
    """Noise for integers of ``1 / scale`` each; none for a deviation of 0."""
    return RoundedGaussian(std * scale) if std else None


def laplace_noise(bound: float, epsilon: float, scale: float) -> DiscreteLaplace | None:
    """Laplace noise on sums of integers of ``1 / scale`` that are at most `bound`; None if epsilon is infinite."""
    return None if math.isinf(epsilon) else DiscreteLaplace(laplace_release(bound, epsilon, scale).scale)


def laplace_release(bound: float, epsilon: float, scale: float) -> LaplaceRelease:
    """The release of such a sum under `laplace_noise`; it costs at most `epsilon`, which must be finite."""
    steps = math.floor(bound * scale * (1 + 1e-12))
    return LaplaceRelease(l1=steps, scale=math.nextafter(steps / epsilon, math.inf))
