"""The recommended recipe among owners of records: an owner's part, and the coordinator's.

What is released before the trees are rounds of their own (`opboost.horizontal.recommended.first_rounds`). The
coordinator draws columns by what released sums tell, so it chooses splits; the privacy accounting holds for any splits.
Sizes of the trees follow from a public number of records, so that every owner knows all noise beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Values
from opboost.horizontal.noise.distributed_noise import owners_guarantee
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.noisy_holder import NoisyHolder
from opboost.horizontal.noise.skellam_sums import skellam_laws
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.first_questions import FirstQuestions
from opboost.horizontal.recommended.first_releases import LEAST_UNIT, MAX_SCORE
from opboost.horizontal.recommended.first_rounds import FirstRounds, Round
from opboost.horizontal.recommended.later_records import margins_of, takes_steps, with_later_records
from opboost.horizontal.recommended.plan import Stage, TrainingPlan
from opboost.horizontal.recommended.residual_size import LEAST_FACTOR
from opboost.horizontal.recommended.round_answers import BoundAnnouncement, FirstAnswers, StagedHolder
from opboost.horizontal.recommended.round_rows import RoundRows, TableRows
from opboost.horizontal.recommended.tree_sizes import TreeSizes, counted_depth
from opboost.horizontal.recommended.tree_training import TreeTask, TreeTraining
from opboost.horizontal.recommended.wire_stages import STEP_KINDS, bound_trees, model_steps, wire_stages
from opboost.horizontal.rows.client_rows import ClientHolder, PlacedHolder
from opboost.horizontal.rows.joint_rows import JointClients
from opboost.horizontal.rows.stream import EarlierTraining
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.horizontal.tree_rules import TreeRules
from opboost.privacy.additive import Noise
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.rng import BitSource, Words
from opboost.trees.complete import RandomRule
from opboost.trees.holder import RowHolder
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedAmongOwners:
    """Public settings of a training, and the parts of workers and coordinator in it; see `recommended_among_owners`.

    Attributes
    ----------
    task : PublicTask
    rounds : FirstRounds
    tree_task : TreeTask
    sizes : TreeSizes
        Of the trees after the first rounds.
    n_records : int
        About how many records all owners have: public.
    noise : LeafNoise
        Of the trees, with all releases.
    delta : float
    are_owners_known : bool
        Whether the owners have each other's public keys.
    earlier : EarlierTraining, optional
        On whose model the new records go on, alone.

    Raises
    ------
    ParameterError
        If scores could be infinite.
    """

    task: PublicTask
    rounds: FirstRounds
    tree_task: TreeTask
    sizes: TreeSizes
    n_records: int
    noise: LeafNoise
    delta: float
    are_owners_known: bool = True
    earlier: EarlierTraining | None = None

    def __post_init__(self) -> None:
        n_before = len(self.earlier.model.trees) if self.earlier else 0
        self.task.check_scores(n_before + self.n_trees, self.tree_rules.max_value)

    @property
    def plan(self) -> TrainingPlan:
        return self.rounds.plan

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The trees after the first rounds, and between them those that announce bounds of numbers' gradients."""
        stages = self.plan.stages(self.tree_task.sensitivity, self.sizes.n_trees)
        return wire_stages(stages, is_numbers=self.tree_task.is_numbers)

    @property
    def n_trees(self) -> int:
        """Trees on the wire, those of the first rounds and of bounds included."""
        return self.rounds.n_trees + sum(stage.n_trees for stage in self.stages) * self.tree_task.n_outputs

    @property
    def n_model_trees(self) -> int:
        """Trees that are steps of the model."""
        return sum(stage.n_trees for stage in self.stages if stage.kind in STEP_KINDS) * self.tree_task.n_outputs

    @property
    def tree_rules(self) -> TreeRules:
        """Limits of the trees and of the questions about them."""
        task = self.tree_task
        depths = {"counts": counted_depth(self.n_records), "sums": self.sizes.depth}
        smallest = LEAST_UNIT * LEAST_FACTOR ** len(bound_trees(self.stages))
        return TreeRules(
            n_trees=self.n_trees,
            max_depth=max((depths.get(stage.kind, 0) for stage in self.stages), default=self.sizes.depth),
            max_value=max(task.rate * (task.max_leaf / smallest if task.is_numbers else task.max_leaf), MAX_SCORE),
            batch_size=task.n_outputs,
            n_histogram_nodes=1,
            n_placements=self.rounds.n_trees,
        )

    def public_rule(self, bits: BitSource) -> RandomRule | None:
        """None: the privacy accounting holds for any splits, so no public rule fixes them."""
        return None

    @property
    def needs_coins(self) -> bool:
        """Always false: the recipe samples no records."""
        return False

    def rows(self, rows: Values, labels: Values, *, rng: BitSource) -> StagedHolder:
        """A worker's holder of its records.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
        labels : ndarray of float64, shape (n_rows,)
            In their own unit; classes are 0, 1, 2, ...
        rng : BitSource
            The owner's own, for its noise.

        Notes
        -----
        Privacy: answers the questions of the first rounds and one per tree, and no more. With noise in shares the
        answers may be summed in anybody's sight; otherwise only by someone who is trusted with exact sums.
        """
        new = slice(self.earlier.n_rows if self.earlier else 0, None)
        return self.answering(TableRows(rows[new], self.records(rows[new], labels[new], coins=None)), rng=rng)

    def records(self, rows: Values, labels: Values, *, coins: Words | None) -> RoundRows:
        """Holder of records in their first cells with exact answers: all of a worker's new records, or a part."""
        margins = margins_of(self.earlier.model, rows) if self.earlier else None
        table = self.task.grid.place(rows)
        return RoundRows(table, labels, self.rounds, self.tree_task, bound_trees(self.stages), margins=margins)

    def answering(self, exact: PlacedHolder, *, rng: BitSource) -> StagedHolder:
        """Verifying holder of all of a worker's rows, with the worker's share of the noise where it adds one.

        Parameters and privacy are those of `rows`.
        """
        noises = [self._first_share(kind) for kind in self.rounds.kinds]
        first = FirstAnswers(exact, rounds=self.rounds, noises=noises, rng=rng.fork("first noise"))
        stages: list[tuple[int, RowHolder]] = [(self.rounds.n_trees, first)]
        for number, stage in enumerate(self.stages):
            n, noise = stage.n_trees * self.tree_task.n_outputs, rng.fork(f"noise {number}")
            holder: RowHolder = BoundAnnouncement(exact)
            if stage.kind != "bound":
                holder = NoisyHolder(exact, noises=self._tree_shares(stage), n_trees=n, rng=noise, is_by_tree=True)
            stages.append((n, holder))
        return StagedHolder(exact, stages, n_outputs=self.tree_task.n_outputs)

    def _first_share(self, kind: Round) -> Noise | None:
        """An owner's share of the noise of a first round."""
        if not self.noise.n_honest or not self.rounds.std(kind):
            return None
        return self.rounds.skellam(kind).share(self.noise.n_honest)

    def _tree_shares(self, stage: Stage) -> tuple[Noise | None, Noise | None]:
        """An owner's share of the noise of trees."""
        if not self.noise.n_honest or not stage.std:
            return None, None
        grad, hess = skellam_laws(self.tree_task.clipping, stage.std)
        # Counts have no second number.
        hess_share = None if stage.kind == "counts" else hess.share(self.noise.n_honest)
        return grad.share(self.noise.n_honest), hess_share

    def train(self, holder: ClientHolder, *, shape_bits: BitSource, rng: BitSource) -> Ensemble:
        """Train as the coordinator, on the sum of all workers' `rows`.

        Notes
        -----
        Privacy: as `guarantee` says.
        """
        own_noise = None if self.noise.n_honest else rng
        first = FirstQuestions(holder, self.rounds, rng=own_noise)
        scores, columns, screened = first.run(self.task.grid)
        training = TreeTraining(
            columns,
            replace(self.tree_task, max_leaf=self.tree_task.max_leaf / self.rounds.start(first.settled).unit),
            JointClients(holder, self.tree_task.n_outputs, columns.axes),
            uniforms=uniforms_ahead(shape_bits),
            noise_rng=own_noise,
        )
        n_trees, depth = self.sizes
        training.run(self.plan, n_trees, depth, n_records=self.n_records, scores=scores, screened=screened)
        return self._ensemble(first.settled, training.trees)

    def model(self, trees: Sequence[Tree]) -> Ensemble:
        """Make a model of all trees on values, those of the first rounds included."""
        first, rest = trees[: self.rounds.n_trees], trees[self.rounds.n_trees :]
        steps = model_steps(self.stages, rest, self.tree_task.n_outputs)
        return self._ensemble([float(tree.values[0]) for tree in first], steps)

    def _ensemble(self, settled: Sequence[float], trees: Sequence[Tree]) -> Ensemble:
        start, n_classes = self.rounds.start(settled), self.rounds.n_classes
        loss: Loss = SquaredError()
        if n_classes:
            loss = Logistic() if n_classes == 2 else Softmax(n_classes)
        model = Ensemble(
            tuple(tree.scaled(start.spread) for tree in trees),
            start.centre + start.spread * start.scores,
            loss,
            tuple(Feature(name) for name in self.task.names),
        )
        if self.earlier is None:
            return model
        if n_classes == 2:
            # The earlier model's scores take the place of the first ones.
            model = replace(model, base_scores=np.zeros(1))
        before, n_before = self.earlier.model, self.earlier.n_records
        return with_later_records(before, model, n_before, self.n_records, are_steps=takes_steps(before))

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """Privacy guarantee of the model, and against whom it does not hold."""
        promise = owners_guarantee(
            self.noise,
            delta=self.delta,
            is_secure=is_secure,
            bounds_are_public=self.task.bounds_are_public,
            are_owners_known=self.are_owners_known,
        )
        return self.earlier.together(promise) if self.earlier else promise
