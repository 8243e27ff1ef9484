"""Joint model: what the active party keeps of a finished vertical training run."""

from __future__ import annotations

from dataclasses import dataclass, field

from opboost.fit_quality import FitQuality
from opboost.noised_table import NoiseChoice
from opboost.privacy.guarantee import Guarantee
from opboost.routing import Router
from opboost.trees.tree import Ensemble
from opboost.trees.validation import History
from opboost.uplift import ColumnUse, Uplift


@dataclass(frozen=True, slots=True, kw_only=True)
class JointModel:
    """The active party's share of a model.

    Attributes
    ----------
    ensemble : Ensemble
        With one feature per own column and per test of each passive party.
    guarantees : dict of str to Guarantee
        Per passive party, what its release promises.
    routers : dict of str to Router
        The passive parties that let A score alone.
    history : History
        Scores of the rows that were held out, round by round.
    fits : tuple of FitQuality
        How the model fits the rows that it was validated or trained on, and held-out records.
    uplift : Uplift or None
        Scores of held-out records, beside those of the active party's own model.
    uses : tuple of ColumnUse
        What the passive parties' columns add on held-out records, of a scouting. Not read back from disk.
    choice : NoiseChoice or None
        What of noised columns the trees were grown on; None if there are none whose release is known. Not
        read back from disk.
    """

    ensemble: Ensemble
    guarantees: dict[str, Guarantee] = field(default_factory=dict)
    routers: dict[str, Router] = field(default_factory=dict)
    history: History = field(default_factory=History)
    fits: tuple[FitQuality, ...] = ()
    uplift: Uplift | None = None
    uses: tuple[ColumnUse, ...] = ()
    choice: NoiseChoice | None = None
