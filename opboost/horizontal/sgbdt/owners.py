"""S-GBDT among owners of records (Kirschte et al., 2023, algorithm 9): an owner's part, and the coordinator's.

Shapes come from public random bits, every owner filters and samples its own records, and sums of (g, h) over all owners
become leaves. As printed, every owner instead draws noise of its own for leaf values of its own, and a leaf is their
mean (`is_mean_of_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.errors import ParameterError
from opboost.horizontal.noise.distributed_noise import owner_laws, weaker_promises
from opboost.horizontal.noise.initial_score import score_of_nothing
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.leaf_sensitivity import VALUE_STEPS
from opboost.horizontal.noise.noisy_holder import NoisyHolder
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.record_holder import (
    Gradients,
    RecordHolder,
    cross_entropy_gradients,
    squared_error_gradients,
)
from opboost.horizontal.sgbdt.training import SGBDT, Shape, random_rule, record_rows
from opboost.horizontal.tree_rules import TreeRules
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.privacy.releases import SkellamRounds
from opboost.rng import BitSource
from opboost.trees.complete import RandomRule
from opboost.trees.holder import RowHolder
from opboost.trees.splitting import Splits
from opboost.trees.tree import Ensemble, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SGBDTAmongOwners:
    """Everything public of a training.

    Attributes
    ----------
    task : PublicTask
    shape : Shape
    noise : LeafNoise
        Added to all owners' sum, or with `LeafNoise.n_honest` in shares by the owners.
    n_trees : int
        Without a filter at most `LeafNoise.n_trees`.
    delta : float
    is_mean_of_values : bool
        As printed: each owner adds all of the noise to its own sums, and its leaf values count as much as another's.
    claimed : float or None
        What the publication says that this costs.
    are_owners_known : bool
        Whether the owners have each other's public keys.

    Raises
    ------
    ParameterError
        If owners are to answer more often than noise in shares is for.
    """

    task: PublicTask
    shape: Shape
    noise: LeafNoise
    n_trees: int
    delta: float
    is_mean_of_values: bool = False
    claimed: float | None = None
    are_owners_known: bool = True

    def __post_init__(self) -> None:
        for release in self.noise.releases:
            if isinstance(release, SkellamRounds) and self.n_trees > release.n_rounds:
                raise ParameterError(f"the noise is for {release.n_rounds} trees; found {self.n_trees}")

    @property
    def tree_rules(self) -> TreeRules:
        """What the trees may look like, and what may be asked of them."""
        rounding = 1 / VALUE_STEPS if self.is_mean_of_values else 0.0
        return TreeRules(
            n_trees=self.n_trees,
            max_depth=self.shape.max_depth,
            max_value=self.shape.learning_rate * self.shape.max_leaf + rounding,
        )

    def public_rule(self, bits: BitSource) -> RandomRule:
        """The shapes of all trees, which follow from public bits (algorithm 9); nobody can choose splits."""
        return random_rule(self.task.grid, self.shape, bits)

    def rows(self, rows: Values, labels: Values, *, rng: BitSource) -> RowHolder:
        """An owner's records.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
        labels : ndarray of float64, shape (n_rows,)
            In their own unit.
        rng : BitSource
            The owner's own, for its coins and its noise.

        Notes
        -----
        Privacy: answers one question per tree, `n_trees` in all. With noise in shares or of its own they may be summed
        in anybody's sight; otherwise only by someone who is trusted with exact sums.
        """
        records = self.records(rows, labels, coins=rng.fork("coins") if self.needs_coins else None)
        return self.answering(records, rng=rng)

    @property
    def needs_coins(self) -> bool:
        """Whether records are sampled."""
        return self.noise.rate != 1

    def records(self, rows: Values, labels: Values, *, coins: BitSource | None) -> RecordHolder:
        """Records in cells, whose answers are exact: all of an owner's, or a part of them.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
            Not kept.
        labels : ndarray of float64, shape (n_rows,)
            In their own unit.
        coins : BitSource or None
            For `needs_coins`. Parts that are asked one after the other may share it.
        """
        return record_rows(
            self.task.grid,
            rows,
            self.task.scaled(labels),
            gradients=self._gradients,
            noise=self.noise,
            initial_score=0.0,
            coins=coins,
        )

    def answering(self, records: RowHolder, *, rng: BitSource) -> RowHolder:
        """What may be asked of `records`, which are one holder of all of an owner's; noise is drawn here, once.

        Parameters and privacy are those of `rows`.
        """
        grad_noise, hess_noise = self.noise.sum_laws if self.is_mean_of_values else owner_laws(self.noise)
        answers = NoisyHolder(
            records, grad_noise=grad_noise, hess_noise=hess_noise, n_trees=self.n_trees, rng=rng.fork("noise")
        )
        return OwnLeafValues(answers, shape=self.shape, noise=self.noise) if self.is_mean_of_values else answers

    def train(self, holder: RowHolder, *, shape_bits: BitSource, rng: BitSource) -> Ensemble:
        """The coordinator's part, on the sum of all owners' `rows`.

        Notes
        -----
        Privacy: as `guarantee` says.
        """
        no_noise = replace(self.noise, grad_std=0.0, hess_std=0.0)
        training = SGBDT(
            self.task.grid,
            gradients=self._gradients,
            shape=self.shape,
            noise=no_noise if self.is_mean_of_values else self.noise,
            initial=score_of_nothing,
            rng=rng,
            shape_bits=shape_bits,
            leaf_values=mean_of_values if self.is_mean_of_values else None,
        )
        training.enrol_holder(holder)
        training.grow(self.n_trees)
        return self.model([self.task.grid.in_values(tree) for tree in training.trees])

    def model(self, trees: Sequence[Tree]) -> Ensemble:
        """The model that trees on values are, their leaves on the scale of training."""
        return self.task.model(trees)

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """What the model promises, and to whom not."""
        epsilon = self.noise.epsilon(self.delta)
        if self.is_mean_of_values:
            whom = "the coordinator too"
        elif self.noise.n_honest:
            whom = (
                f"the coordinator too, as long as {self.noise.n_honest} of the workers in every sum add their share of "
                "the noise"
            )
        else:
            whom = "but not against the coordinator, which sees the workers' exact sums and adds the noise"
        return RecordGuarantee(
            epsilon=epsilon,
            delta=self.delta if epsilon < np.inf else 0.0,
            account=f"{self.noise.basis}, Skellam noise in shares" if self.noise.n_honest else self.noise.basis,
            mode="paper" if self.claimed is not None else "certified",
            is_secure=is_secure,
            bounds_are_public=self.task.bounds_are_public,
            claimed_epsilon=self.claimed,
            neighbours=self.noise.neighbours,
            weaker=weaker_promises(self.noise, delta=self.delta, are_owners_known=self.are_owners_known),
            protected=(
                f"Whether any one record was used, and every value in it, against everyone who sees the model, {whom}."
            ),
        )

    @property
    def _gradients(self) -> Gradients:
        return cross_entropy_gradients if self.task.is_classification else squared_error_gradients


class OwnLeafValues:
    """An owner's noisy leaf values in place of its noisy sums, each with a 1, so that the sum has their number too.

    Parameters
    ----------
    holder : RowHolder
        Whose answers may be released.
    shape : Shape
    noise : LeafNoise
    """

    def __init__(self, holder: RowHolder, *, shape: Shape, noise: LeafNoise) -> None:
        self._holder = holder
        self._shape = shape
        self._noise = noise

    def start_tree(self, output: int) -> None:
        self._holder.start_tree(output)

    def add_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._holder.add_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        values = self._shape.leaf_values(self._holder.totals(nodes), self._noise)
        codes = np.rint(values * VALUE_STEPS).astype(np.int64)
        return np.column_stack([codes, np.ones_like(codes)])

    def divide(self, splits: Splits) -> None:
        self._holder.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._holder.finish_tree(tree)


def mean_of_values(totals: Sums) -> Values:
    """Leaf values from the sum of `OwnLeafValues`."""
    return totals[:, 0] / (VALUE_STEPS * np.maximum(totals[:, 1], 1))
