"""InPrivate among chain owners that are processes of their own: public settings, and each owner's part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError
from opboost.horizontal.inprivate.settings import ROUND_DOWN, InPrivateSettings
from opboost.horizontal.inprivate.training import Owner, boosted_residuals, releases
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.record_holder import squared_gradients
from opboost.privacy.accounting import by_pure
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.privacy.releases import Release
from opboost.rng import BitSource
from opboost.trees.tree import Ensemble, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class InPrivateAmongOwners:
    """Public settings of a training, and the parts of its chain owners.

    Attributes
    ----------
    task : PublicTask
        Trees are in bins of its grid until the model is put together.
    settings : InPrivateSettings
    """

    task: PublicTask
    settings: InPrivateSettings

    @property
    def epsilon(self) -> float:
        """Epsilon of one turn."""
        return self.task.epsilon * ROUND_DOWN

    @property
    def score_scale(self) -> float:
        """Scores over sums of leaves: trees of classes add up to half of the log odds."""
        return 2.0 if self.task.is_classification else 1.0

    @property
    def releases(self) -> tuple[Release, ...]:
        """Releases of one owner; none without noise."""
        return releases(self.settings, self.epsilon) if math.isfinite(self.epsilon) else ()

    def owner(self, rows: Values, labels: Values, *, coins: BitSource, rng: BitSource) -> Owner:
        """Make a chain owner with its records.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
        labels : ndarray of float64, shape (n_rows,)
            In their own unit.
        coins : BitSource
            The same in every process of this owner.
        rng : BitSource
            For choices and noise, a stream for every turn; the same in every process of this owner.
        """
        return Owner(
            rows,
            self.task.scaled(labels),
            self.task.grid,
            self.settings,
            gradients=boosted_residuals if self.task.is_classification else squared_gradients,
            rng=rng,
            coins=coins,
            is_by_turn=True,
        )

    def checked(self, tree: Tree) -> Tree:
        """A tree that came as arrays, with its splits of categories; one that no owner could have made is refused.

        Raises
        ------
        DataError
        """
        axes = self.task.grid.axes
        inner = np.flatnonzero(~tree.is_leaf)
        columns, cuts = tree.columns[inner], tree.thresholds[inner]
        alone = np.isin(columns, self.task.grid.categorical)
        is_sound = (
            tree.depth <= self.settings.max_depth
            and (columns < axes.n_columns).all()
            and (cuts >= 0).all()
            # A cut lies between two cells; of categories one is parted from the others, and from who has none.
            and (cuts < axes.sizes[columns] - 2 + alone).all()
            and (cuts == np.rint(cuts)).all()
            and not tree.missing_left[inner[alone]].any()
            and (np.abs(tree.values) <= self.settings.max_value).all()
        )
        if not is_sound:
            raise DataError("a tree does not fit the columns, the grid or the settings that were agreed on")
        lefts = {int(node): (int(cut),) for node, cut in zip(inner[alone], cuts[alone], strict=True)}
        return replace(tree, left_categories=lefts)

    def ensemble(self, trees: Sequence[Tree]) -> Ensemble:
        """Make the model of all owners' trees, in bins and in the order of turns."""
        return self.task.ensemble(trees, 0.0, score_scale=self.score_scale)

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """Privacy guarantee of every owner's trees for its records."""
        return RecordGuarantee(
            epsilon=by_pure(self.releases) if self.releases else math.inf,
            delta=0.0,
            account="pure composition" if self.releases else "no noise",
            mode="certified",
            is_secure=is_secure,
            bounds_are_public=self.task.bounds_are_public,
            protected=(
                "Whether any one record was used, and every value in it, is protected against everyone who sees the "
                "trees, the other owners too."
            ),
        )
