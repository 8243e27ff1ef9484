"""Trees of each output of a model, grown on one filled table by either engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from opboost.arrays import Mask, Values
from opboost.errors import ParameterError
from opboost.fitting.noised_table import Filled, held_out_table
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
class Growing:
    """What the trees of all outputs have in common."""

    filled: Filled
    weights: Values
    is_trained: Mask
    parameters: BoostingParameters
    limits: Constraints
    validation: ValidationPlan | None
    known: KnownRows | None
    engine: Engine
    seed: int | None
    on_round: OnRound

    def all_outputs(
        self,
        loss: Loss,
        labels: Values,
        leaf_labels: Values | None,
        margins: Values,
        start: Values | None,
        earlier: Sequence[Tree],
    ) -> tuple[list[Tree], Values, History]:
        """Trees, base scores and history of a loss, each of whose single outputs has trees of its own."""
        if len(loss.singles) == 1:
            return self.grow(loss.singles[0], labels, leaf_labels, margins, start, earlier, output=None)
        return combined(
            [
                self.grow(
                    single,
                    labels[:, k],
                    leaf_labels,
                    margins[k : k + 1],
                    None if start is None else start[k : k + 1],
                    earlier[k :: len(loss.singles)],
                    output=k,
                )
                for k, single in enumerate(loss.singles)
            ]
        )

    def grow(
        self,
        loss: Loss,
        labels: Values,
        leaf_labels: Values | None,
        margins: Values,
        start: Values | None,
        earlier: Sequence[Tree],
        *,
        output: int | None,
    ) -> tuple[list[Tree], Values, History]:
        """Trees, base scores and history of one output, or of several that have their gradients together."""
        rows, parameters = self.is_trained, self.parameters
        table, alternates, held_out = self.filled.table, self.filled.alternates, None
        trained_margins, held_out_margins = (margins[:, rows], margins[:, ~rows]) if len(margins) else (0.0, 0.0)
        if self.validation is not None:
            held_out = HeldOutRows(
                held_out_table(self.filled, ~rows, n_draws=n_draws(len(rows))),
                labels[~rows],
                self.validation.metrics,
                held_out_margins,
            )
            table, alternates = table.of_rows(rows), alternates and alternates.of_rows(rows)
        elif self.known is not None and self.known.metrics:
            held_out = self.known.held_out(table, output)
        # XGBoost scores held-out rows with every tree at full weight.
        if (
            held_out is not None
            and leaf_labels is None
            and (self.engine == "native" or self.filled.margins is not None)
        ):
            held_out = self.filled.beside_own(held_out, loss.n_outputs)
        shared: dict[str, Any] = {
            "loss": loss,
            "constraints": self.limits,
            "alternates": alternates,
            "seed": self.seed,
            "margins": trained_margins,
            "earlier": earlier,
        }
        weights = self._of_rows(parameters.weighted(labels, self.weights, loss))
        begin, trained = partial(parameters.base_scores, loss, has_margins=len(margins) > 0), self._of_rows(labels)
        base_scores = begin(trained, weights) if start is None else start
        boost = boost_with_xgboost if self.engine == "xgboost" else boost_table
        trees, history = boost(
            table,
            trained,
            weights,
            parameters,
            base_scores=base_scores,
            held_out=held_out,
            on_round=self.on_round,
            **shared,
        )
        if leaf_labels is None:
            return trees, base_scores, history
        if self.engine == "xgboost" or self.limits.monotone.any() or parameters.booster == "dart" or earlier:
            raise ParameterError(
                "leaves cannot be fitted anew with XGBoost, monotone constraints, DART or an earlier model"
            )
        loss.check_labels(leaf_labels)
        weights = parameters.weighted(leaf_labels, self.weights, loss)[rows]
        base_scores = begin(leaf_labels[rows], weights)
        del shared["earlier"]
        trees = refit_table(trees, table, leaf_labels[rows], weights, parameters, base_scores=base_scores, **shared)
        return trees, base_scores, history

    def _of_rows(self, values: Values) -> Values:
        """Values of the rows that are trained on, as compiled loops take them; those of all rows are not copied."""
        return np.require(values if self.validation is None else values[self.is_trained], requirements=("C", "W"))


def with_cuts_from_zero(tree: Tree, table: BinnedTable) -> Tree:
    """The tree with children exchanged where all present values go right: behind the last bin is a cut, before none."""
    is_before = ~tree.is_leaf & (tree.thresholds < 0)
    if not is_before.any():
        return tree
    behind_last = np.where(is_before, table.axes.sizes[tree.columns] - 2.0, tree.thresholds)
    return replace(tree, thresholds=behind_last).with_children_swapped(is_before)
