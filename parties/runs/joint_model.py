"""Joint model: what the active party keeps of a finished vertical training run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape

import numpy as np

from opboost.columns import RankColumn
from opboost.fit_quality import FitQuality
from opboost.fitting.noised_table import NoiseChoice
from opboost.privacy.guarantee import Guarantee
from opboost.routing import Router
from opboost.trees.tree import Ensemble
from opboost.trees.validation import History
from opboost.uplift import ColumnUse, Uplift
from parties.errors import Disagreement

USES_FILE = "uses.json"

# Has, per peer, what its share of the model has too: shares of different trainings would not be told apart by a run_id.
TRAININGS_FILE = "trainings.json"

_PIECE_ROWS = 1 << 20


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
        What of noised columns the trees were grown on; None if there are none whose release is known.
    n_own_trees : int
        As of `opboost.vertical.TrainedTrees`.
    release : dict of str to str
        Of each released column, ``owner/name``, a digest of its ranks in the order of the records.
    categories : dict of str to sequence of str
        What the values of each own column are numbers of; nothing where they are numbers by themselves, nor of a
        model that was read from its run folder, where the schema says it.
    trainings : dict of str to str
        Per passive party, a digest that its share of the model has too.
    """

    ensemble: Ensemble
    guarantees: dict[str, Guarantee] = field(default_factory=dict)
    routers: dict[str, Router] = field(default_factory=dict)
    history: History = field(default_factory=History)
    fits: tuple[FitQuality, ...] = ()
    uplift: Uplift | None = None
    uses: tuple[ColumnUse, ...] = ()
    choice: NoiseChoice | None = None
    n_own_trees: int = 0
    release: dict[str, str] = field(default_factory=dict)
    categories: dict[str, Sequence[str]] = field(default_factory=dict)
    trainings: dict[str, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        promises = (f"<p>{escape(peer)}:</p>{guarantee._repr_html_()}" for peer, guarantee in self.guarantees.items())
        return self.ensemble._repr_html_() + "".join(promises)

    def caveat(self, *, desensitized: bool) -> str | None:
        """Caveat about scores from exact or from desensitized answers; None if there is none."""
        if not desensitized or self.choice in (None, NoiseChoice.ALONE, NoiseChoice.PLAIN):
            return None
        return (
            "these trees learned through the noise and expect exact answers: of desensitized ones, a model that is "
            "trained with `correct_noise: false` makes more"
        )

    def check_asked(self, peers: Iterable[str]) -> None:
        """Refuse to ask these passive parties alone where the model needs others: their answers would be for nothing.

        Raises
        ------
        Disagreement
        """
        if absent := sorted(set(self.ensemble.owners).difference(peers)):
            raise Disagreement(
                f"the model needs answers of {', '.join(absent)}, whom the run file does not name. Nothing was asked"
            )

    def documents(self) -> dict[str, dict[str, object]]:
        """Documents besides trees, guarantees, routers and fits, by their files in the run folder."""
        documents_by_file: dict[str, dict[str, object]] = {}
        if self.history.scores:
            documents_by_file["history.json"] = {"best_round": self.history.best_round, "scores": self.history.scores}
        if self.choice is not None:
            documents_by_file["noise.json"] = {
                "words": self.choice.sentence,
                "choice": self.choice.value,
                "own_trees": self.n_own_trees,
            }
        if self.release:
            documents_by_file["release.json"] = dict(self.release)
        if self.trainings:
            documents_by_file[TRAININGS_FILE] = dict(self.trainings)
        if self.uplift is not None:
            documents_by_file["held_out.json"] = asdict(self.uplift)
        if self.uses:
            documents_by_file[USES_FILE] = {"uses": [asdict(use) for use in self.uses]}
        return documents_by_file


def check_categories(trained: Mapping[str, Sequence[str]], own: Mapping[str, Sequence[str]]) -> None:
    """Refuse columns whose categories have other numbers than in training; further ones may follow.

    Raises
    ------
    Disagreement
    """
    for name, now in own.items():
        before = trained.get(name, now)
        if bool(before) != bool(now) or list(now[: len(before)]) != list(before):
            raise Disagreement(
                f"the model was trained on other categories of column {name!r}, or on the same in another order: bring "
                "that list back; new categories stand behind it. Nothing was computed"
            )


def release_digests(columns: Sequence[RankColumn]) -> dict[str, str]:
    """Digests of released columns, by ``owner/name``."""
    found = {}
    for column in columns:
        digest = hashlib.sha256(f"{column.n_ranks} {np.asarray(column.cuts).tolist()}".encode())
        for start in range(0, len(column.ranks), _PIECE_ROWS):
            digest.update(np.asarray(column.ranks[start : start + _PIECE_ROWS], "<u4").tobytes())
        found[f"{column.owner}/{column.name}"] = digest.hexdigest()
    return found
