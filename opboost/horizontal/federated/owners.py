"""The federated framework among owners of records (Maddock et al., CCS 2022): an owner's part, and the coordinator's.

Noise is added to everybody's sum by the coordinator, or in shares by the owners. The latter is for random trees whose
cells stay where they are: one question per tree, for sums of leaves. A histogram would be of all columns, used or not,
and noise on it would have to be paid for as many queries as there are columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opboost.arrays import Values
from opboost.errors import ParameterError
from opboost.horizontal.federated.question_verifier import AskedRows
from opboost.horizontal.federated.training import Choices, Trained, train
from opboost.horizontal.federated.weight_updates import LeafRule, WeightUpdate
from opboost.horizontal.noise.distributed_noise import owner_laws, owners_guarantee
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.noisy_holder import NoisyHolder
from opboost.horizontal.noise.query_account import QueryAccount
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.client_rows import ClientHolder, ClientRows, PlacedHolder, RecordSettings, client_records
from opboost.horizontal.rows.record_holder import RecordHolder
from opboost.horizontal.tree_rules import TreeRules
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.rng import BitSource, Words
from opboost.trees.complete import RandomRule
from opboost.trees.tree import Ensemble, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedAmongOwners:
    """Public settings of a training, and the parts of workers and coordinator in it.

    Attributes
    ----------
    task : PublicTask
        Its grid has the split candidates to begin with.
    choices : Choices
    update : WeightUpdate
    leaf : LeafRule
    noise : QueryAccount or LeafNoise
        What the coordinator adds to every answer; or with `LeafNoise.n_honest` the owners in shares.
    delta : float
    are_owners_known : bool
        Whether the owners have each other's public keys.

    Raises
    ------
    ParameterError
        If owners are to add noise to answers that are not in their account, or on another grid than its, or if scores
        could be infinite.
    """

    task: PublicTask
    choices: Choices
    update: WeightUpdate
    leaf: LeafRule
    noise: QueryAccount | LeafNoise
    delta: float
    are_owners_known: bool = True

    def __post_init__(self) -> None:
        self.task.check_scores(self.n_trees, self.tree_rules.max_value)
        if isinstance(self.noise, LeafNoise):
            check_noise_in_shares(self.choices)
            if self.noise.clipping != self.update.clipping:
                raise ParameterError("the noise in shares is for other contributions than those of the weight update")

    @property
    def n_trees(self) -> int:
        return self.choices.n_trees

    @property
    def tree_rules(self) -> TreeRules:
        """Limits of the trees and of the questions about them."""
        choices = self.choices
        is_moved = choices.refining != "none"
        n_refined = choices.n_trees if choices.split_method == "hist" else choices.hessian_rounds
        n_histogram_nodes = 2 ** (choices.max_depth - 1)
        if choices.split_method == "tr":
            n_histogram_nodes = int(is_moved)
        elif choices.split_method == "hist" and choices.n_columns_of_a_tree(len(self.task.names)) == 1:
            n_histogram_nodes = 1  # That of the root serves all levels.
        return TreeRules(
            n_trees=choices.n_trees,
            max_depth=choices.max_depth,
            max_value=self.update.max_value(self.leaf),
            batch_size=choices.batch_size,
            is_complete=choices.split_method == "tr",
            n_histogram_nodes=n_histogram_nodes,
            n_placements=n_refined if is_moved else 0,
        )

    def public_rule(self, bits: BitSource) -> RandomRule | None:
        """None: the privacy accounting holds for any splits, so no public rule fixes them."""
        return None

    def rows(self, rows: Values, labels: Values, *, rng: BitSource) -> PlacedHolder:
        """A worker's holder of its records.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
        labels : ndarray of float64, shape (n_rows,)
            In their own unit.
        rng : BitSource
            The owner's own, for its noise.

        Notes
        -----
        Privacy: answers what `choices` ask for and no more. With noise in shares the answers may be summed in anybody's
        sight; otherwise only by someone who is trusted with exact sums.
        """
        return self.answering(ClientRows(rows, self.task.scaled(labels), **self._of_records), rng=rng)

    @property
    def needs_coins(self) -> bool:
        """Whether records are sampled."""
        return False

    def records(self, rows: Values, labels: Values, *, coins: Words | None) -> RecordHolder:
        """Holder of records in their first cells with exact answers: all of a worker's records, or a part.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
            Not kept.
        labels : ndarray of float64, shape (n_rows,)
            In their own unit.
        coins : Words or None
            Not needed.
        """
        return client_records(rows, self.task.scaled(labels), **self._of_records)

    @property
    def _of_records(self) -> RecordSettings:
        return {
            "columns": self.task.grid,
            "gradients": self.update.gradients,
            "clipping": self.update.clipping,
            "walks": self.choices.split_method == "tr",
        }

    def answering(self, exact: PlacedHolder, *, rng: BitSource) -> PlacedHolder:
        """Verifying holder of all of a worker's rows, with the worker's share of the noise where it adds one.

        Parameters and privacy are those of `rows`.
        """
        n_columns = len(self.task.names)
        if not isinstance(self.noise, LeafNoise):
            return AskedRows(exact, exact, choices=self.choices, n_columns=n_columns)
        noisy = NoisyHolder(
            exact, noises=owner_laws(self.noise), n_trees=self.n_trees, rng=rng.fork("noise"), is_by_tree=True
        )
        return AskedRows(exact, noisy, choices=self.choices, n_columns=n_columns)

    def train(self, holder: ClientHolder, *, shape_bits: BitSource, rng: BitSource) -> Ensemble:
        """Train as the coordinator, on the sum of all workers' `rows`.

        Notes
        -----
        Privacy: as `guarantee` says.
        """
        return self.model(self.trained(holder, shape_bits=shape_bits, rng=rng).trees)

    def trained(self, holder: ClientHolder, *, shape_bits: BitSource, rng: BitSource) -> Trained:
        """Train as the coordinator, and count queries and rounds."""
        multiplier = self.noise.multiplier if isinstance(self.noise, QueryAccount) else 0.0
        return train(
            holder,
            self.task.grid,
            self.choices,
            update=self.update,
            leaf=self.leaf,
            multiplier=multiplier,
            rng=rng,
            shape_bits=shape_bits,
        )

    def model(self, trees: Sequence[Tree]) -> Ensemble:
        """Make a model of trees on values, whose leaves are on the scale of training."""
        return self.task.model(trees, has_scores=self.update.name != "averaging")

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """Privacy guarantee of the model, and against whom it does not hold."""
        return owners_guarantee(
            self.noise,
            delta=self.delta,
            is_secure=is_secure,
            bounds_are_public=self.task.bounds_are_public,
            are_owners_known=self.are_owners_known,
        )


def check_noise_in_shares(choices: Choices) -> None:
    """Refuse choices for which noise in shares has no privacy accounting."""
    if choices.split_method != "tr" or choices.refining != "none":
        raise ParameterError(
            "noise in shares is for random trees on candidates that stay where they are (tr; uniform or log): other "
            f"methods ask for histograms, of which owners have no account. Found {choices.split_method} with "
            f"{'Iterative Hessian' if choices.refining != 'none' else 'fixed candidates'}"
        )
