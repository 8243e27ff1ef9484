"""An earlier model that training continues, and the checks that new trees fit to it."""

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
        """Make it from the active party's share of a model."""
        return cls(EarlierModel(model.ensemble, model.choice, model.n_own_trees), model.release, model.categories)

    def check_own(self, loss: Loss, own: Sequence[OwnColumn], *, margins: Sequence[str]) -> None:
        """Refuse an objective, base margins, their order, or own categories that differ from the earlier model's.

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
        check_categories(self.categories, {column.name: column.categories for column in own})

    def check(self, received: Sequence[RankColumn], *, correct_noise: bool) -> None:
        """Refuse a release, or a treatment of its noise, that differs from the earlier model's.

        Raises
        ------
        Disagreement, ParameterError
        """
        learns = correct_noise and any(column.release is not None for column in received)
        if self.model.choice is not None and received and not learns:
            raise ParameterError(
                "the model to continue was trained with `correct_noise` on columns whose codes are shared: new trees "
                "would see other values than its own did. Nothing was trained"
            )
        ensemble = self.model.ensemble
        digests = release_digests(received)
        asked = {f"{feature.owner}/{feature.name}" for feature in ensemble.features if feature.owner is not None}
        if changed := sorted(name for name in asked if digests.get(name) != self.release.get(name, "")):
            raise Disagreement(
                f"the model to continue was trained on another release of {', '.join(changed)}: it needs the same "
                "records, values and noise. Nothing was trained"
            )
