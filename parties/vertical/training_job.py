"""What goes into the active party's side of a training run, and what comes out of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.columns import OwnColumn, RankColumn
from opboost.errors import ParameterError
from opboost.fitting.noised_table import NoiseChoice
from opboost.fitting.outputs import Engine
from opboost.fitting.recipe import calmed, patient
from opboost.schema import TableSchema
from opboost.trees.boosting import BoostingParameters, OnRound
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Loss
from opboost.trees.validation import Metric, ValidationPlan
from opboost.vertical import TrainedTrees
from parties.config.model_section import ModelSection
from parties.config.reading import check_schema_of_model, read_section
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError
from parties.runs.earlier_model import Earlier
from parties.runs.journal import Journal
from parties.runs.run_folder import RunFolder
from parties.storage.documents import read_yaml
from parties.tables.party_table import PartyTable
from parties.vertical.rank_receiver import Receipt
from protocols.alignment.id_proof import password_of
from protocols.messages.fields import MAX_TESTS
from protocols.messages.vertical import Hello, Role, Task, Terms


@dataclass(frozen=True, slots=True)
class HeldOutRecords:
    """Records outside the training table: ids, the active party's columns by name, and labels."""

    ids: pd.Index
    own: Mapping[str, Values]
    labels: Values


def earlier_of_run(run: ActiveRun, schema: TableSchema, loss: Loss, own: Sequence[OwnColumn]) -> Earlier | None:
    """The model that a run continues, if it continues one and may.

    Raises
    ------
    ConfigError, Disagreement, ParameterError, RunFolderError
        If the model's columns, objective, bins or validation rows are others than this run's.
    """
    if run.continue_from is None:
        return None
    folder = RunFolder(run.continue_from)
    model = folder.load_joint_model()
    check_schema_of_model(schema, folder.path, model.ensemble)
    found = Earlier.of(model)
    found.check_own(loss, own, margins=schema.base_margin)
    before = read_section(ActiveRun, read_yaml(folder.path / "config.yaml")).model
    if run.model.max_bin != before.max_bin:
        raise ConfigError(
            f"model.max_bin is {run.model.max_bin}, and the run to continue had {before.max_bin}: passive parties' "
            "columns would have other cuts than its trees ask about. Nothing was trained"
        )
    _check_validation(run.model, before, folder)
    return found


def _check_validation(model: ModelSection, before: ModelSection, continued: RunFolder) -> None:
    """Refuse validation rows that the trees of a run to continue were grown on."""
    if model.validation_fraction is None:
        return
    is_same = model.seed in (None, continued.read_json("meta.json").get("seed"))
    if not is_same or model.validation_fraction != before.validation_fraction:
        found = f"{before.validation_fraction or 'none'}{'' if is_same else ' and another model.seed'}"
        raise ConfigError(
            f"model.validation_fraction is {model.validation_fraction:g}, and the run to continue had {found}: its "
            "trees have seen rows that these would be validated on. Nothing was trained"
        )


class Grower(Protocol):
    """Grows trees where the active party's rows lie, from the passive parties' columns alone."""

    @property
    def n_rows(self) -> int: ...
    def __call__(
        self, received: Sequence[RankColumn], /, *, parameters: BoostingParameters, constraints: ColumnConstraints
    ) -> TrainedTrees:
        """The trees; of own columns alone where none was received."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJob:
    """What the active party brings to a training run.

    Attributes
    ----------
    party, run_id : str
    id_digest : str or None
        None before the records are aligned: such a job only greets.
    own : tuple of OwnColumn
    labels, weights : ndarray of float64, shape (n_rows,)
        Like the rows of `own`, empty where `grow` has them.
    margins : tuple of OwnColumn
        Where each record's scores start, one column per output; empty for none.
    earlier : Earlier, optional
        A model whose trees the new ones follow.
    noised_labels : ndarray of float64, shape (n_rows,), optional
        Labels that decide on everything but the leaves, and so on everything that peers see.
    loss : Loss
    parameters : BoostingParameters
    constraints : ColumnConstraints
        On own columns and on passive parties', by the names that these go by.
    validation : ValidationPlan, optional
        Rows to stop early by.
    metrics : tuple of Metric
        Of held-out records whose cells are asked for before training, to stop early by where there is no `validation`.
    held_out_share : float
        Share of the common records that is held out of training.
    most_records : int, optional
        How many of the others are released and trained on, at most; then what each column of peers adds is measured.
    held_out : HeldOutRecords, optional
        These records, once they are chosen; they are not among `n_rows`.
    engine : {"native", "xgboost"}
        What grows the trees.
    grow : Grower, optional
        Grows them in place of `engine`: for rows that lie elsewhere.
    correct_noise : bool
        Whether to learn through the noise of columns whose owner shares the released codes.
    left_open : frozenset of str
        Names of the parameters that nobody chose, which may be set as suits noise.
    by_cells : bool
        Whether passive parties answer with cells of a grid that they offer, in place of split tests.
    seed : int or None
        For row and column sampling.
    alignment : str
        How the records were aligned, in words that must be the same on both sides.
    orders : dict of str to ndarray of int64
        Per passive party, in which order its ranks travel, where that is not the order of the records.
    on_round : callable
        Takes a RoundReport after every round; training ends if it returns True.
    column_order : tuple of str, optional
        Order of all columns, which decides ties; by default A's own, then each passive party's.
    agreed : mapping of str to Terms
        What was agreed that each peer does.
    journal : Journal, optional
        Where to keep what is needed to go on after an interruption, and what to go on from.
    """

    party: str
    run_id: str
    id_digest: str | None
    own: tuple[OwnColumn, ...]
    labels: Values
    weights: Values
    loss: Loss
    parameters: BoostingParameters
    margins: tuple[OwnColumn, ...] = ()
    earlier: Earlier | None = None
    noised_labels: Values | None = None
    constraints: ColumnConstraints = field(default_factory=ColumnConstraints)
    validation: ValidationPlan | None = None
    metrics: tuple[Metric, ...] = ()
    held_out_share: float = 0.0
    most_records: int | None = None
    held_out: HeldOutRecords | None = None
    engine: Engine = "native"
    grow: Grower | None = None
    correct_noise: bool = True
    left_open: frozenset[str] = frozenset()
    by_cells: bool = False
    seed: int | None = None
    alignment: str = "prealigned"
    orders: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    on_round: OnRound = lambda _: None
    column_order: tuple[str, ...] = ()
    agreed: Mapping[str, Terms] = field(default_factory=dict)
    journal: Journal | None = None

    def __post_init__(self) -> None:
        if self.earlier is not None:
            self.earlier.check_own(self.loss, self.own, margins=[one.name for one in self.margins])

    @property
    def n_rows(self) -> int:
        """Records."""
        return len(self.labels) if self.grow is None else self.grow.n_rows

    def grown_with(self, choice: NoiseChoice | None) -> BoostingParameters:
        """The parameters of trees on passive columns, or of all where there are no others; None: no noise is known."""
        if choice is None:
            return self.parameters
        if choice is NoiseChoice.ALONE:
            return calmed(self.parameters, self.left_open)
        return patient(self.parameters, self.left_open, self.loss, self.n_rows)

    def most_tests(self, peer: str) -> int:
        """How many split tests the model can ask a party for.

        Of an earlier model's splits only the tests count that this party has resolved: how many there are on other
        columns depends on labels, and is not for it to know.
        """
        if self.by_cells:
            return 0
        any_of = map(self.grown_with, (None, *NoiseChoice))
        n_splits = max(one.n_estimators * one.max_splits for one in any_of) * self.loss.n_outputs
        before = () if self.earlier is None else self.earlier.model.ensemble.features
        return min(n_splits + sum(one.owner == peer and one.rank is not None for one in before), MAX_TESTS)

    def receipt(self, peer: str) -> Receipt:
        """What a peer has sent so far; empty without a journal."""
        folder = None if self.journal is None else self.journal.folder_of(peer)
        return Receipt(peer, self.n_rows, folder, order=self.orders.get(peer))

    def hello(self, peer: str, receipt: Receipt | None = None, task: Task = Task.TRAIN) -> Hello:
        """The greeting for a peer; with what was received of it, once ranks are due."""
        return Hello(
            role=Role.ACTIVE,
            party=self.party,
            run_id=self.run_id,
            task=task,
            n_rows=self.n_rows,
            alignment=self.alignment,
            has_label=True,
            plan=Terms(
                objective=self.loss.name,
                tests=self.most_tests(peer),
                held_out=self.held_out_share,
                most_records=self.most_records,
                by_cells=self.by_cells,
            ),
            agreed=self.agreed.get(peer, Terms()),
            held=receipt.held() if receipt else None,
        )

    def passwords(self, peers: Iterable[str]) -> dict[str, bytes]:
        """What proves to each of these peers which records this is about; empty before they are aligned."""
        digest = self.id_digest
        return {} if digest is None else {peer: password_of(digest, self.orders.get(peer)) for peer in peers}

    def check_names(self, theirs: Mapping[str, Hello]) -> None:
        """Refuse constraints on a column that no party is going to bring, while nothing is released.

        Raises
        ------
        ParameterError
        """
        names = [column.name for column in self.own]
        are_categorical = [column.is_categorical for column in self.own]
        for hello in theirs.values():
            names += hello.names
            are_categorical += [False] * len(hello.names)
        try:
            self.constraints.on(names, are_categorical=are_categorical, max_delta_step=0.0)
        except ParameterError as error:
            raise ParameterError(f"{error}. Nothing was released") from None


def digest_of_own(whole: PartyTable, brought: PartyTable, own: Sequence[OwnColumn]) -> str:
    """A digest of what the active party brings: ids, labels, weights, margins and own columns of the whole file."""
    named = [whole.id_digest, brought.id_digest, [column.name for column in own]]
    digest = hashlib.sha256(json.dumps(named).encode())
    for values in (whole.labels, whole.weights, *whole.margins.values(), *(column.values for column in own)):
        digest.update(np.ascontiguousarray(np.empty(0) if values is None else values))
    return digest.hexdigest()
