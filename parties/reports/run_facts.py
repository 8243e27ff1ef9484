"""Facts of a finished vertical run: guarantees, ledger, quality and importance.

Each side's facts are its own. A's hold statistics of its labels and the trees' importance, and of B what B released.
B's hold its columns' names and how many thresholds are used, and nothing else of the trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opboost.fit_quality import FitQuality
from opboost.label_noise import bits_of_tests, most_guessed
from opboost.privacy.guarantee import ColumnGuarantee, Guarantee
from opboost.trees.tree import Ensemble
from opboost.uplift import Uplift
from parties.config.reading import read_role, read_run, read_section
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError
from parties.reports.held_out_section import load_uplift
from parties.reports.ledger_statement import Statement, known_statement
from parties.reports.run_history import RunHistory, meta_of, run_history
from parties.reports.sentences import column_sentence
from parties.reports.words import as_answered
from parties.runs.run_folder import LABELS_FILE, RunFolder
from parties.storage.documents import read_yaml
from parties.storage.serialization import guarantee_from_dict

_PROMISE = TypeAdapter(ColumnGuarantee)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """Importance of a column to the trees.

    Attributes
    ----------
    column : str
        A passive party's under the name that it goes by: a number, unless its owner names it.
    owner : str
        The passive party, or empty for A.
    share : float
        Of the total gain of all splits.
    n_splits : int
    """

    column: str
    owner: str
    share: float
    n_splits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelLeak:
    """What a passive party can learn of labels from the tests that it resolved.

    Attributes
    ----------
    n_columns, n_tests : int
        Columns that it offered, and tests on them.
    bits : float
        That the choice of these tests tells at most.
    share : float
        Of labels that are 0 or 1 with equal chance: how many these bits let it guess at most.
    """

    n_columns: int
    n_tests: int
    bits: float
    share: float

    @classmethod
    def of(cls, guarantee: Guarantee, n_tests: int, n_rows: int, label_epsilon: float) -> LabelLeak:
        """Compute it for a release; every rank may be asked for with either direction of missing cells."""
        kinds = [column.parameters for column in guarantee.columns]
        ranks = [2 * k["n_categories"] if "n_categories" in k else min(k["domain_size"], n_rows) for k in kinds]
        bits = bits_of_tests(round(2 * sum(ranks)), n_tests)
        n_columns = sum(round(k.get("n_categories", 1)) for k in kinds)
        share = min(most_guessed(bits, n_rows), 1 / (1 + math.exp(-label_epsilon)))
        return cls(n_columns=n_columns, n_tests=n_tests, bits=bits, share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFacts:
    """Facts of a finished run at the active party.

    Attributes
    ----------
    history : RunHistory
    guarantees : dict of str to Guarantee
        By passive party.
    label_leaks : dict of str to LabelLeak
        By passive party; none where these answer with cells.
    label_promise : ColumnGuarantee or None
        Of the labels on which trees were grown; None if these were the true ones.
    objective : str
    n_trees : int
    settings : dict
        The run file's `model` section.
    uplift : Uplift or None
        Scores of held-out records; None where none were held out.
    fits : tuple of FitQuality
        In training, and of predictions where labels were known.
    importance : tuple of Importance
        Most important first.
    noise : str
        What was made of noised columns, in words; empty if nothing was.
    shares_thresholds : tuple of str
        Passive parties that let A score alone.
    by_cells : bool
        Whether passive parties answer with cells, in place of split tests.
    """

    history: RunHistory
    guarantees: dict[str, Guarantee]
    label_leaks: dict[str, LabelLeak]
    label_promise: ColumnGuarantee | None
    objective: str
    n_trees: int
    settings: dict[str, Any]
    uplift: Uplift | None
    fits: tuple[FitQuality, ...]
    importance: tuple[Importance, ...]
    noise: str
    shares_thresholds: tuple[str, ...]
    by_cells: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedColumn:
    """A passive party's column: its guarantee in words, and the number of its split tests, or of its cells."""

    column: str
    sentence: str
    n_tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveFacts:
    """Facts of a finished run at a passive party.

    Attributes
    ----------
    history : RunHistory
    guarantee : Guarantee
    columns : tuple of UsedColumn
    ledger : Statement, or None if the ledger lacks the run
    shared_thresholds, allows_routed, by_cells : bool
    answered_records : str
        Which records are answered for from exact values, where `allows_routed`.
    n_bits : int
        Of the answer about a record.
    """

    history: RunHistory
    guarantee: Guarantee
    columns: tuple[UsedColumn, ...]
    ledger: Statement | None
    shared_thresholds: bool
    allows_routed: bool
    answered_records: str
    by_cells: bool
    n_bits: int


def run_facts(path: Path) -> ActiveFacts | PassiveFacts:
    """Collect the facts of a finished run.

    Raises
    ------
    RunFolderError
        If the run is not finished, or its folder is damaged.
    LedgerError
        If a passive party's ledger cannot be trusted.
    """
    if read_role(path) == "active":
        return _active_facts(read_run(path, ActiveRun))
    return _passive_facts(read_run(path, PassiveRun), path)


def _active_facts(run: ActiveRun) -> ActiveFacts:
    folder = RunFolder(run.run_folder)
    model, meta = folder.load_joint_model(), meta_of(folder)
    seed = run.model.seed if run.model.seed is not None else meta.seed
    n_rows, promise = max(1, meta.n_rows), _label_promise(folder)
    by_cells = any(feature.n_cells is not None for feature in model.ensemble.features)
    return ActiveFacts(
        history=run_history(run, tuple(peer.name for peer in run.passive), folder, f"seed of sampling: {seed}"),
        guarantees=model.guarantees,
        label_leaks={
            peer: LabelLeak.of(
                guarantee,
                len(model.ensemble.inputs.get(peer, ())),
                n_rows,
                math.inf if promise is None else promise.domain_loss,
            )
            for peer, guarantee in model.guarantees.items()
            if not by_cells
        },
        label_promise=promise,
        objective=model.ensemble.loss.name,
        n_trees=len(model.ensemble.trees),
        settings=run.model.model_dump(exclude_unset=True),
        uplift=load_uplift(folder),
        fits=folder.load_fits(),
        importance=importance_of(model.ensemble, model.guarantees)[0],
        noise=str(folder.read_json("noise.json").get("words", "")) if (folder.path / "noise.json").exists() else "",
        shares_thresholds=tuple(sorted(model.routers)),
        by_cells=by_cells,
    )


def _label_promise(folder: RunFolder) -> ColumnGuarantee | None:
    if not (folder.path / LABELS_FILE).exists():
        return None
    try:
        return _PROMISE.validate_python(folder.read_json(LABELS_FILE))
    except ValidationError:
        raise RunFolderError(f"{folder.path / LABELS_FILE} is malformed") from None


def _passive_facts(run: PassiveRun, path: Path) -> PassiveFacts:
    folder = RunFolder(run.run_folder)
    router, guarantee = folder.load_router(), guarantee_from_dict(folder.read_json("guarantee.json"))
    drawn = "noise from the operating system's entropy" if guarantee.is_secure else "SEEDED NOISE: not for release"
    # The run file may have been changed since, and answers been given that the run itself refused.
    of_run = read_section(PassiveRun, read_yaml(folder.path / "config.yaml"))
    history = run_history(run, (run.active.name,), folder, drawn)
    sources = [source for source, _ in router.tests.sources]
    if run.allow_routed or any(use.n_routed_bits for use in (*history.predictions, history.held_out) if use):
        guarantee = as_answered(guarantee, n_tests=router.tests.n_tests, n_cells=of_run.n_cells)
    return PassiveFacts(
        history=history,
        guarantee=guarantee,
        columns=tuple(
            UsedColumn(
                column=mechanism.schema.name,
                sentence=column_sentence(mechanism, router.unit_s(mechanism.schema.name)),
                n_tests=sources.count(mechanism.schema.name),
            )
            for mechanism in router.mechanisms
        ),
        ledger=known_statement(path, run, is_over=True),
        shared_thresholds=of_run.share_thresholds,
        allows_routed=run.allow_routed,
        answered_records=run.routed.words,
        by_cells=router.tests.by_cells,
        n_bits=router.tests.n_bits,
    )


def importance_of(
    ensemble: Ensemble, guarantees: Mapping[str, Guarantee] | None = None
) -> tuple[tuple[Importance, ...], bool]:
    """Importance of columns by gain and splits; and whether the trees know gains.

    Where they do not, shares are of the splits. The categories of one column count together, where the passive
    parties' guarantees say which these are.
    """
    grouped = {peer: _column_names(guarantee.columns) for peer, guarantee in (guarantees or {}).items()}
    has_gains = any(tree.gains.any() for tree in ensemble.trees)
    gains: dict[tuple[str, str], list[float]] = {}
    pairs = zip(
        ensemble.importance("total_gain" if has_gains else "split").tolist(),
        ensemble.importance("split").tolist(),
        strict=True,
    )
    for feature, (gain, n_splits) in zip(ensemble.features, pairs, strict=True):
        owner = feature.owner or ""
        sums = gains.setdefault((grouped.get(owner, str)(feature.name), owner), [0.0, 0.0])
        sums[0] += gain
        sums[1] += n_splits
    total = sum(gain for gain, _ in gains.values()) or 1.0
    importance = (
        Importance(column=name, owner=owner, share=gain / total, n_splits=round(n_splits))
        for (name, owner), (gain, n_splits) in gains.items()
    )
    return tuple(sorted(importance, key=lambda entry: (-entry.share, entry.owner, entry.column))), has_gains


def _column_names(columns: Sequence[ColumnGuarantee]) -> Callable[[str], str]:
    """From the name of an offered column to that of the column it belongs to: categories are offered one by one."""
    names: dict[str, str] = {}
    first = 0
    for promise in columns:
        width = round(promise.parameters.get("n_categories", 1))
        if width > 1:
            names |= {f"c{c}": f"c{first} to c{first + width - 1}" for c in range(first, first + width)}
        first += width
    unordered = [promise.column for promise in columns if "n_categories" in promise.parameters]

    def name_of(offered: str) -> str:
        return next((column for column in unordered if offered.startswith(f"{column}=")), names.get(offered, offered))

    return name_of
