"""The active party's training job: its inputs, its greetings, and the earlier model that it continues."""

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
from opboost.fitting.recipe import with_noise_defaults, with_own_defaults
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
    """The active party's held-out records: ids, own columns by name, and labels."""

    ids: pd.Index
    own: Mapping[str, Values]
    labels: Values


def earlier_of_run(run: ActiveRun, schema: TableSchema, loss: Loss, own: Sequence[OwnColumn]) -> Earlier | None:
    """Load and check the model that a run continues; None if it continues none.

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
    earlier = Earlier.of(model)
    earlier.check_own(loss, own, margins=schema.base_margin)
    before = read_section(ActiveRun, read_yaml(folder.path / "config.yaml")).model
    if run.model.max_bin != before.max_bin:
        raise ConfigError(
            f"model.max_bin is {run.model.max_bin}, and the run to continue had {before.max_bin}: passive parties' "
            "columns would have other cuts than its trees ask about. Nothing was trained"
        )
    _check_validation(run.model, before, folder)
    return earlier


def _check_validation(model: ModelSection, before: ModelSection, continued: RunFolder) -> None:
    """Refuse validation rows on which the continued run's trees were grown."""
    if model.validation_fraction is None:
        return
    is_same = model.seed in (None, continued.read_json("meta.json").get("seed"))
    if not is_same or model.validation_fraction != before.validation_fraction:
        earlier = f"{before.validation_fraction or 'none'}{'' if is_same else ' and another model.seed'}"
        raise ConfigError(
            f"model.validation_fraction is {model.validation_fraction:g}, and the run to continue had {earlier}: its "
            "trees have seen rows that these would be validated on. Nothing was trained"
        )


class Grower(Protocol):
    """Interface of a grower for rows outside this process, such as on a cluster; it is sent the received columns."""

    @property
    def n_rows(self) -> int: ...
    def __call__(
        self, received: Sequence[RankColumn], /, *, parameters: BoostingParameters, constraints: ColumnConstraints
    ) -> TrainedTrees:
        """Grow trees on own and received columns."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJob:
    """The active party's inputs to a training run.

    Attributes
    ----------
    party, run_id : str
    id_digest : str or None
        None before the records are aligned: such a job only greets.
    own : tuple of OwnColumn
    labels, weights : ndarray of float64, shape (n_rows,)
        Empty, like the rows of `own`, where `grow` has them.
    margins : tuple of OwnColumn
        Initial score of each record, one column per output; empty for none.
    earlier : Earlier, optional
        A model whose trees the new ones follow.
    noised_labels : ndarray of float64, shape (n_rows,), optional
        Labels for everything but the leaf values, and so for everything that peers see.
    loss : Loss
    parameters : BoostingParameters
    constraints : ColumnConstraints
        On own columns and on passive parties', by their released names.
    validation : ValidationPlan, optional
        Rows for early stopping.
    metrics : tuple of Metric
        For early stopping without `validation`, by held-out records whose cells are asked for before training.
    held_out_share : float
        Share of the common records that is held out of training.
    most_records : int, optional
        Most records that are released and trained on. If it is set, the uplift of every peer's column is measured.
    held_out : HeldOutRecords, optional
        The held-out records, once they are chosen; not counted in `n_rows`.
    engine : {"native", "xgboost"}
        Implementation that grows the trees.
    grow : Grower, optional
        Grows the trees in place of `engine`, for rows outside this process.
    correct_noise : bool
        Whether to learn through the noise of columns whose owner shares the released codes.
    left_open : frozenset of str
        Names of the parameters that the user left at their defaults; they may be adapted to noise.
    by_cells : bool
        Whether passive parties answer with cells of a grid that they offer, in place of split tests.
    seed : int or None
        For row and column sampling.
    alignment : str
        How the records were aligned, in words that must be the same on both sides.
    orders : dict of str to ndarray of int64
        Per passive party, the order in which its ranks are sent; absent if that is the order of the records.
    on_round : callable
        Takes a RoundReport after every round; training ends if it returns True.
    column_order : tuple of str, optional
        Order of all columns, which breaks ties; by default A's own, then each passive party's.
    agreed : mapping of str to Terms
        What each peer has agreed to.
    journal : Journal, optional
        State from which an interrupted run is resumed.
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
            self.earlier.check_own(self.loss, self.own, margins=[margin.name for margin in self.margins])

    @property
    def n_rows(self) -> int:
        """Records."""
        return len(self.labels) if self.grow is None else self.grow.n_rows

    def grown_with(self, choice: NoiseChoice | None) -> BoostingParameters:
        """Parameters adapted to a choice about noise; unchanged for None, where the noise is unknown."""
        if choice is None:
            return self.parameters
        if choice is NoiseChoice.ALONE:
            return with_own_defaults(self.parameters, self.left_open)
        return with_noise_defaults(self.parameters, self.left_open, self.loss, self.n_rows)

    def most_tests(self, peer: str) -> int:
        """The most split tests that the model can ask of a party.

        Of an earlier model's splits only this party's count: the number on other columns depends on labels, and must
        not be revealed to it.
        """
        if self.by_cells:
            return 0
        candidates = map(self.grown_with, (None, *NoiseChoice))
        n_splits = (
            max(parameters.n_estimators * parameters.max_splits for parameters in candidates) * self.loss.n_outputs
        )
        before = () if self.earlier is None else self.earlier.model.ensemble.features
        return min(n_splits + sum(feature.owner == peer and feature.rank is not None for feature in before), MAX_TESTS)

    def receipt(self, peer: str) -> Receipt:
        """The part of a peer's release that was received so far; empty without a journal."""
        folder = None if self.journal is None else self.journal.folder_of(peer)
        return Receipt(peer, self.n_rows, folder, order=self.orders.get(peer))

    def hello(self, peer: str, receipt: Receipt | None = None, task: Task = Task.TRAIN) -> Hello:
        """The greeting for a peer; with `receipt`, it says which ranks are held already."""
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
        """The password for the proof of ids with each of these peers; empty before records are aligned."""
        digest = self.id_digest
        return {} if digest is None else {peer: password_of(digest, self.orders.get(peer)) for peer in peers}

    def check_names(self, theirs: Mapping[str, Hello]) -> None:
        """Refuse constraints on a column that no party has, before anything is released.

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
    """Digest of the active party's inputs: ids, labels, weights, margins and own columns of the whole file."""
    named = [whole.id_digest, brought.id_digest, [column.name for column in own]]
    digest = hashlib.sha256(json.dumps(named).encode())
    for values in (whole.labels, whole.weights, *whole.margins.values(), *(column.values for column in own)):
        digest.update(np.ascontiguousarray(np.empty(0) if values is None else values))
    return digest.hexdigest()
