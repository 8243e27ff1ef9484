"""A finished model that training goes on from, and what the new trees have to have in common with its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opboost.columns import OwnColumn, RankColumn
from opboost.errors import ParameterError
from opboost.split_tests import EarlierModel
from opboost.trees.losses import Loss
from parties.errors import Disagreement
from parties.runs.joint_model import JointModel, check_categories, release_digests


@dataclass(frozen=True, slots=True)
class Earlier:
    """A finished model that training goes on from; digests of its released columns, and lists of own categories."""

    model: EarlierModel
    release: Mapping[str, str]
    categories: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, model: JointModel) -> Earlier:
        """The same of the active party's share of a model."""
        return cls(EarlierModel(model.ensemble, model.choice, model.n_own_trees), model.release, model.categories)

    def check_own(self, loss: Loss, own: Sequence[OwnColumn], *, margins: Sequence[str]) -> None:
        """Refuse another objective, other base margins or another order of them, and other numbers of own categories.

        Raises
        ------
        Disagreement, ParameterError
        """
        ensemble = self.model.ensemble
        if ensemble.loss != loss and ensemble.loss.name == loss.name:
            raise ParameterError(
                f"the model to continue has another number of classes or labels, or other parameters, of the objective "
                f"{loss.name} than this run. Nothing was trained"
            )
        before = [ensemble.features[i].name for i in ensemble.offsets]
        if ensemble.loss != loss or before != list(margins):
            raise ParameterError(
                f"the model to continue has the objective {ensemble.loss.name} with the margins "
                f"{', '.join(before) or 'none'}; this run has {loss.name} with {', '.join(margins) or 'none'}. Nothing "
                "was trained"
            )
        check_categories(self.categories, {one.name: one.categories for one in own})

    def check(self, received: Sequence[RankColumn], *, correct_noise: bool) -> None:
        """Refuse another release, and one that trees are to take otherwise than the earlier ones did.

        Raises
        ------
        Disagreement, ParameterError
        """
        learns = correct_noise and any(one.release is not None for one in received)
        if self.model.choice is not None and received and not learns:
            raise ParameterError(
                "the model to continue was trained with `correct_noise` on columns whose codes are shared: new trees "
                "would see other values than its own did. Nothing was trained"
            )
        ensemble = self.model.ensemble
        found = release_digests(received)
        asked = {f"{one.owner}/{one.name}" for one in ensemble.features if one.owner is not None}
        if changed := sorted(name for name in asked if found.get(name) != self.release.get(name, "")):
            raise Disagreement(
                f"the model to continue was trained on another release of {', '.join(changed)}: it needs the same "
                "records, values and noise. Nothing was trained"
            )
