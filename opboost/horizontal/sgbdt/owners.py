"""S-GBDT among owners of records (Kirschte et al., 2023, algorithm 9): an owner's part, and the coordinator's.

Shapes come from public random bits, every owner filters and samples its own records, and sums of (g, h) over all owners
become leaves. As printed, every owner instead draws noise of its own for leaf values of its own, and a leaf is their
mean (`is_mean_of_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.errors import ParameterError
from opboost.horizontal.noise.distributed_noise import owner_laws, owners_guarantee
from opboost.horizontal.noise.initial_score import score_of_nothing
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.leaf_sensitivity import VALUE_STEPS
from opboost.horizontal.noise.noisy_holder import NoisyHolder
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.record_holder import Gradients, RecordHolder, logistic_gradients, squared_gradients
from opboost.horizontal.rows.stream import EarlierTraining
from opboost.horizontal.sgbdt.training import SGBDT, SGBDTSettings, random_rule, record_rows
from opboost.horizontal.tree_rules import TreeRules
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.privacy.releases import SkellamRounds
from opboost.rng import BitSource, Words
from opboost.trees.complete import RandomRule
from opboost.trees.holder import ForwardingHolder, RowHolder
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SGBDTAmongOwners:
    """Public settings of a training, and the parts of workers and coordinator in it.

    Attributes
    ----------
    task : PublicTask
    settings : SGBDTSettings
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
    earlier : EarlierTraining, optional
        Whose trees the new ones follow; see `going_on`.

    Raises
    ------
    ParameterError
        If owners are to answer more often than noise in shares is for, or scores could be infinite.
    """

    task: PublicTask
    settings: SGBDTSettings
    noise: LeafNoise
    n_trees: int
    delta: float
    is_mean_of_values: bool = False
    claimed: float | None = None
    are_owners_known: bool = True
    earlier: EarlierTraining | None = None

    def __post_init__(self) -> None:
        n_before = len(self.earlier.model.trees) if self.earlier else 0
        self.task.check_scores(n_before + self.n_trees, self.tree_rules.max_value)
        for release in self.noise.releases:
            if isinstance(release, SkellamRounds) and self.n_trees > release.n_rounds:
                raise ParameterError(f"the noise is for {release.n_rounds} trees; found {self.n_trees}")

    def going_on(self, earlier: EarlierTraining) -> SGBDTAmongOwners:
        """The same for so many more trees on a finished training of these settings, with records that have arrived.

        Notes
        -----
        Privacy: `guarantee` is for both trainings together, and for those that the finished one goes on from, as long
        as no new record is a copy of an earlier one. With the filter no record spends more than its budget in all of
        them; without it, each takes part in one.
        """
        noise, settings = self.noise, self.settings
        if noise.has_filter:
            n_rounds = len(earlier.model.trees) + noise.n_trees
            releases = tuple(
                replace(release, n_rounds=n_rounds) if isinstance(release, SkellamRounds) else release
                for release in noise.releases
            )
            noise = replace(noise, releases=releases)
        else:
            # The new trees see nothing of the records before.
            settings = replace(settings, learning_rate=settings.learning_rate * settings.later_rate)
        return replace(self, noise=noise, settings=settings, n_trees=noise.n_trees, earlier=earlier)

    @property
    def tree_rules(self) -> TreeRules:
        """Limits of the trees and of the questions about them."""
        rounding = 1 / VALUE_STEPS if self.is_mean_of_values else 0.0
        return TreeRules(
            n_trees=self.n_trees,
            max_depth=self.settings.max_depth,
            max_value=self.settings.learning_rate * self.settings.max_leaf + rounding,
        )

    def public_rule(self, bits: BitSource) -> RandomRule:
        """Random rule of all trees' shapes from public bits (algorithm 9); nobody can choose splits."""
        return random_rule(self.task.grid, self.settings, bits)

    def rows(self, rows: Values, labels: Values, *, rng: BitSource) -> RowHolder:
        """A worker's holder of its records.

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
        make = partial(self.records, coins=rng.fork("coins") if self.needs_coins else None)
        if self.earlier is None:
            return self.answering(make(rows, labels), rng=rng)
        held = self.earlier.holder(rows, labels, grid=self.task.grid, has_filter=self.noise.has_filter, records=make)
        return self.answering(held, rng=rng)

    @property
    def needs_coins(self) -> bool:
        """Whether records are sampled."""
        return self.noise.rate != 1

    def records(self, rows: Values, labels: Values, *, coins: Words | None) -> RecordHolder:
        """Holder of records in cells with exact answers: all of a worker's records, or a part.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
            Not kept.
        labels : ndarray of float64, shape (n_rows,)
            In their own unit.
        coins : Words or None
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
        """Verifying holder of all of a worker's records, with the noise that the worker adds.

        Parameters and privacy are those of `rows`.
        """
        noises = self.noise.sum_laws if self.is_mean_of_values else owner_laws(self.noise)
        answers = NoisyHolder(records, noises=noises, n_trees=self.n_trees, rng=rng.fork("noise"), is_by_tree=True)
        return OwnLeafValues(answers, settings=self.settings, noise=self.noise) if self.is_mean_of_values else answers

    def train(self, holder: RowHolder, *, shape_bits: BitSource, rng: BitSource) -> Ensemble:
        """Train as the coordinator, on the sum of all workers' `rows`.

        Notes
        -----
        Privacy: as `guarantee` says.
        """
        no_noise = replace(self.noise, grad_std=0.0, hess_std=0.0)
        training = SGBDT(
            self.task.grid,
            gradients=self._gradients,
            settings=self.settings,
            noise=no_noise if self.is_mean_of_values else self.noise,
            initial=score_of_nothing,
            rng=rng,
            shape_bits=shape_bits,
            leaf_values=self._mean_of_values if self.is_mean_of_values else None,
        )
        training.enrol_holder(holder)
        training.grow(self.n_trees)
        return self.model([self.task.grid.in_values(tree) for tree in training.trees])

    def model(self, trees: Sequence[Tree]) -> Ensemble:
        """Make a model of trees on values, whose leaves are on the scale of training; they follow the earlier ones."""
        model = self.task.model(trees)
        return replace(model, trees=(*self.earlier.model.trees, *model.trees)) if self.earlier else model

    def kept_trees(self, trees: Sequence[Tree]) -> Ensemble:
        """All trees on the scale of training, which a training that goes on from this one needs."""
        before = self.earlier.trees if self.earlier else ()
        return Ensemble((*before, *trees), np.zeros(1), SquaredError(), tuple(Feature(one) for one in self.task.names))

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """Privacy guarantee of the model, and against whom it does not hold."""
        promise = owners_guarantee(
            self.noise,
            delta=self.delta,
            is_secure=is_secure,
            bounds_are_public=self.task.bounds_are_public,
            are_owners_known=self.are_owners_known,
            is_noise_of_each=self.is_mean_of_values,
            claimed=self.claimed,
        )
        return self.earlier.together(promise) if self.earlier else promise

    def _mean_of_values(self, totals: Sums) -> Values:
        """Mean leaf values from the sum of `OwnLeafValues`, which one worker that sends others cannot exceed."""
        most = self.tree_rules.max_value
        return np.clip(totals[:, 0] / (VALUE_STEPS * np.maximum(totals[:, 1], 1)), -most, most)

    @property
    def _gradients(self) -> Gradients:
        return logistic_gradients if self.task.is_classification else squared_gradients


class OwnLeafValues(ForwardingHolder):
    """Row holder that answers with a worker's noisy leaf values, each with a count of 1, in place of noisy sums.

    Parameters
    ----------
    holder : RowHolder
        Whose answers may be released.
    settings : SGBDTSettings
    noise : LeafNoise
    """

    def __init__(self, holder: RowHolder, *, settings: SGBDTSettings, noise: LeafNoise) -> None:
        super().__init__(holder)
        self._settings = settings
        self._noise = noise

    def totals(self, nodes: Nodes) -> Sums:
        values = self._settings.leaf_values(super().totals(nodes), self._noise)
        codes = np.rint(values * VALUE_STEPS).astype(np.int64)
        return np.column_stack([codes, np.ones_like(codes)])
