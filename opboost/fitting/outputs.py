"""Trees of each output of a model, grown on one filled table by either engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from opboost.arrays import Mask, Values
from opboost.errors import ParameterError
from opboost.fitting.noised_table import FilledTable, held_out_table
from opboost.fitting.trials import n_draws
from opboost.trees.binning import BinnedTable
from opboost.trees.boosting import BoostingParameters, OnRound, boost_table, refit_table
from opboost.trees.constraints import Constraints
from opboost.trees.losses import Loss
from opboost.trees.tree import Tree
from opboost.trees.validation import HeldOutRows, History, KnownRows, ValidationPlan, combined
from opboost.trees.xgboost_engine import boost_with_xgboost

Engine = Literal["native", "xgboost"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingTargets:
    """Labels of one or several outputs, and the scores that their trees start from.

    Attributes
    ----------
    loss : Loss
    labels : ndarray of float64, shape (n_rows,) or (n_rows, n_outputs)
    margins : ndarray of float64, shape (n_outputs, n_rows)
        Added to the base scores of each row; of length 0 if there are none.
    base_scores : ndarray of float64, shape (n_outputs,), or None
        Of an earlier model; None to compute them from the labels.
    earlier : sequence of Tree
        Trees of an earlier model, in bins, one per output by turns.
    leaf_labels : ndarray of float64, shape (n_rows,), or None
        Labels to which base scores and leaves are fitted anew, once the trees are grown.
    """

    loss: Loss
    labels: Values
    margins: Values
    base_scores: Values | None = None
    earlier: Sequence[Tree] = ()
    leaf_labels: Values | None = None

    def of_output(self, output: int, loss: Loss) -> TrainingTargets:
        """Targets of one of several outputs."""
        return replace(
            self,
            loss=loss,
            labels=self.labels[:, output],
            margins=self.margins[output : output + 1],
            base_scores=None if self.base_scores is None else self.base_scores[output : output + 1],
            earlier=self.earlier[output :: len(self.loss.singles)],
        )


@dataclass(frozen=True, slots=True, eq=False)
class OutputTrainer:
    """Training of all outputs on common rows, with common parameters.

    Attributes
    ----------
    filled : FilledTable
    weights : ndarray of float64, shape (n_rows,)
        Before those of classes.
    is_trained : ndarray of bool, shape (n_rows,)
        False for the rows that `validation` holds out.
    parameters : BoostingParameters
    limits : Constraints
    validation : ValidationPlan or None
    known : KnownRows or None
        Held-out rows beside the table, which are scored where there is no `validation`.
    engine : {"native", "xgboost"}
    seed : int or None
    on_round : callable
    """

    filled: FilledTable
    weights: Values
    is_trained: Mask
    parameters: BoostingParameters
    limits: Constraints
    validation: ValidationPlan | None
    known: KnownRows | None
    engine: Engine
    seed: int | None
    on_round: OnRound

    def train(self, targets: TrainingTargets) -> tuple[list[Tree], Values, History]:
        """Trees, base scores and history of a loss, each of whose single outputs has trees of its own."""
        singles = targets.loss.singles
        if len(singles) == 1:
            return self.train_output(replace(targets, loss=singles[0]), output=None)
        return combined([self.train_output(targets.of_output(k, single), output=k) for k, single in enumerate(singles)])

    def train_output(self, targets: TrainingTargets, *, output: int | None) -> tuple[list[Tree], Values, History]:
        """Trees, base scores and history of one output, or of several that have their gradients together."""
        self._check_refit(targets)
        loss, margins = targets.loss, targets.margins
        table, alternates = self.filled.table, self.filled.alternates
        if self.validation is not None:
            table = table.of_rows(self.is_trained)
            alternates = alternates and alternates.of_rows(self.is_trained)
        train_margins = margins[:, self.is_trained] if len(margins) else 0.0
        labels = self._of_trained_rows(targets.labels)
        weights = self._of_trained_rows(self.parameters.weighted(targets.labels, self.weights, loss))
        base_scores = targets.base_scores
        if base_scores is None:
            base_scores = self.parameters.base_scores(loss, labels, weights, has_margins=len(margins) > 0)
        boost = boost_with_xgboost if self.engine == "xgboost" else boost_table
        trees, history = boost(
            table,
            labels,
            weights,
            self.parameters,
            loss=loss,
            base_scores=base_scores,
            constraints=self.limits,
            held_out=self._held_out_rows(targets, output),
            alternates=alternates,
            margins=train_margins,
            earlier=targets.earlier,
            seed=self.seed,
            on_round=self.on_round,
        )
        if targets.leaf_labels is None:
            return trees, base_scores, history
        leaf_labels = targets.leaf_labels[self.is_trained]
        weights = self.parameters.weighted(targets.leaf_labels, self.weights, loss)[self.is_trained]
        base_scores = self.parameters.base_scores(loss, leaf_labels, weights, has_margins=len(margins) > 0)
        trees = refit_table(
            trees,
            table,
            leaf_labels,
            weights,
            self.parameters,
            loss=loss,
            base_scores=base_scores,
            constraints=self.limits,
            alternates=alternates,
            margins=train_margins,
            seed=self.seed,
        )
        return trees, base_scores, history

    def _held_out_rows(self, targets: TrainingTargets, output: int | None) -> HeldOutRows | None:
        """Rows to score after every round, if there are any."""
        held_out: HeldOutRows | None = None
        if self.validation is not None:
            rows = ~self.is_trained
            held_out = HeldOutRows(
                held_out_table(self.filled, rows, n_draws=n_draws(len(rows))),
                targets.labels[rows],
                self.validation.metrics,
                targets.margins[:, rows] if len(targets.margins) else 0.0,
            )
        elif self.known is not None and self.known.metrics:
            held_out = self.known.held_out(self.filled.table, output)
        if held_out is None or targets.leaf_labels is not None:
            return held_out
        # XGBoost scores held-out rows with every tree at full weight.
        if self.engine == "xgboost" and self.filled.margins is None:
            return held_out
        return self.filled.beside_own(held_out, targets.loss.n_outputs)

    def _check_refit(self, targets: TrainingTargets) -> None:
        """Refuse leaves that cannot be fitted to the leaf labels, if there are any."""
        if targets.leaf_labels is None:
            return
        is_monotone, is_dart = self.limits.monotone.any(), self.parameters.booster == "dart"
        if self.engine == "xgboost" or is_monotone or is_dart or targets.earlier:
            raise ParameterError(
                "leaves cannot be fitted anew with XGBoost, monotone constraints, DART or an earlier model"
            )
        targets.loss.check_labels(targets.leaf_labels)

    def _of_trained_rows(self, values: Values) -> Values:
        """Values of the rows that are trained on, as compiled loops take them; those of all rows are not copied."""
        return np.require(values if self.validation is None else values[self.is_trained], requirements=("C", "W"))


def with_cuts_from_zero(tree: Tree, table: BinnedTable) -> Tree:
    """The tree with children exchanged where all present values go right: behind the last bin is a cut, before none."""
    is_before = ~tree.is_leaf & (tree.thresholds < 0)
    if not is_before.any():
        return tree
    behind_last = np.where(is_before, table.axes.sizes[tree.columns] - 2.0, tree.thresholds)
    return replace(tree, thresholds=behind_last).with_children_swapped(is_before)
