"""Run files of vertical training: the active party's and a passive party's, checked as a whole before anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from opboost import rng
from opboost.cell_grid import DEFAULT_CELLS
from opboost.desensitize import ColumnMechanism
from opboost.errors import nearest
from opboost.schema import TableSchema
from opboost.trees.tree import MOST_GRID_CELLS
from opboost.trees.validation import Metric
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.align_section import AlignSection
from parties.config.cluster_section import DaskSection
from parties.config.data_section import Data, DataSource
from parties.config.desensitize_section import DesensitizeSection
from parties.config.model_section import ModelSection
from parties.config.party_run import ROLE_ALIASES, PartyRun, Peer, Wiring
from parties.config.protection import (
    Epsilon,
    Finite,
    GivenBudget,
    LabelBounds,
    check_protection,
    given_budgets,
    loss_of,
)
from parties.config.score_policy import RevealSection
from parties.config.section import MOST_COUNT, Section
from parties.config.serve_section import HttpSection, RoutedSection, ServeSection
from parties.errors import ConfigError
from parties.ledger.budget import Budget, Limit

Bits = Annotated[float, Field(ge=0)]
RoleName = BeforeValidator(lambda value: ROLE_ALIASES.get(value, value) if isinstance(value, str) else value)


class LimitSection(Section):
    """Limits of one column; what is left out is not limited."""

    epsilon: Epsilon | None = Field(None, description="Most epsilon of a column, per step of its own.")
    category_epsilon: Epsilon | None = Field(None, description="The same for categories and empty cells.")
    cell_bits: Bits | None = Field(None, description="Most bits of cells that a Local-Map publishes.")

    def limit(self) -> Limit:
        """The limits as a ledger value."""
        return Limit(self.epsilon, self.category_epsilon, self.cell_bits)


class BudgetSection(LimitSection):
    """Budget over all runs: of every column, of single columns instead, and of one record over all columns."""

    columns: dict[str, LimitSection] = Field({}, description="Limits of single columns, in place of those of all.")
    per_record: Finite | None = Field(None, description="Most epsilon of a record over all columns.")
    cell_bits_per_record: Bits | None = Field(None, description="Most bits of cells of a record.")

    def budgets(self) -> Iterator[GivenBudget]:
        """The limits by their places in the run file."""
        for name in (None, *self.columns):
            section, suffix = (self, "") if name is None else (self.columns[name], f".columns.{name}")
            limits = {"epsilon": section.epsilon, "category_epsilon": section.category_epsilon}
            yield from given_budgets(f"ledger.budget{suffix}", **limits)

    def budget(self, schema: TableSchema) -> Budget:
        """The limits, checked against the columns there are."""
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown:
            names = f"{', '.join(unknown)}{nearest(unknown, schema.names)}"
            raise ConfigError(f"ledger.budget.columns names columns that the schema lacks: {names}")
        columns = {name: section.limit() for name, section in self.columns.items()}
        steps = {column.name: column.own_step or 0.0 for column in schema.columns}
        return Budget(self.limit(), columns, self.per_record, self.cell_bits_per_record, steps)


class LedgerSection(Section):
    """The `ledger` section of a passive party: the privacy ledger of all its runs, and its budget."""

    path: Path = Field(Path("runs/ledger.sqlite"), description="The ledger, one for all runs on the same people.")
    budget: BudgetSection = Field(BudgetSection(), description="The most that may be spent over all runs.")


class _Run(PartyRun):
    source: Data = Field(
        alias="data", description="Data file, CSV or Parquet, a folder of Parquet files, or what is elsewhere."
    )
    ids: Path | None = Field(None, description="File that lists the records to use, the same at all parties.")
    align: AlignSection = Field(AlignSection(), description="How common records are found.")
    held_out: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.2,
        description="Share of the common records that is never released for training, to score the model on; the same "
        "at all parties. 0: none; about 20,000 records of a first run at most.",
    )
    most_records: Annotated[int, Field(ge=100, le=MOST_COUNT)] | None = Field(
        None,
        description="Common records to release and train on, at most, drawn at random by both sides; the same at all "
        "parties. `opboost scout` sets it.",
    )
    engine: Literal["dask"] | None = Field(None, description="Whether a Dask cluster does this party's work.")
    answers: Literal["cells", "tests"] = Field(
        "tests",
        description="How passive parties answer about records, the same at all parties: `cells` of a grid that is "
        "agreed on before training and depends on no label, or the split `tests` of the trees, which do.",
    )
    dask: DaskSection = Field(DaskSection(), validate_default=True, description="The cluster, with `engine: dask`.")

    @property
    def data(self) -> Path:
        """The data file; what is elsewhere is fetched at the first use.

        Raises
        ------
        ConfigError, TableError
        """
        return self.source.file() if isinstance(self.source, DataSource) else self.source

    @field_validator("dask")
    @classmethod
    def _place_partitions(cls, dask: DaskSection, info: ValidationInfo) -> DaskSection:
        if "folder" in dask.model_fields_set or "run_folder" not in info.data:
            return dask
        return dask.model_copy(update={"folder": info.data["run_folder"].parent / dask.folder})

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.most_records is not None and (self.engine == "dask" or not self.held_out):
            raise ValueError("most_records goes with `held_out` above 0, and without `engine: dask`")
        if self.align.keys and self.align.method_for(self.ids) == "prealigned":
            raise ValueError("`align.keys` are compared by `method: psi`, `psi-dh` or `hashed`; found prealigned")
        if self.engine is None and "dask" in self.model_fields_set:
            raise ValueError("the section `dask` goes with `engine: dask`")
        if self.engine == "dask" and isinstance(self.source, DataSource):
            raise ValueError("engine: dask reads files that all cluster processes see; `data` must be one, or a folder")
        if self.engine == "dask" and self.align.keys:
            raise ValueError("`align.keys` are for a table in memory: leave them or `engine: dask` out")
        self.align.check_order(getattr(self.source, "query", None))
        return self


class ActiveRun(_Run):
    """The active party's run file; `no_privacy` lifts the bounds of `parties.config.protection`, in every role's."""

    role: Annotated[Literal["active"], RoleName] = Field(description="The role; `guest` is read as `active`.")
    listen: ListenAddress = Field(description="Address that passive parties connect to.")
    passive: Annotated[tuple[Peer, ...], Field(min_length=1)] = Field(description="The passive parties.")
    continue_from: Path | None = Field(
        None,
        description="Run folder of a finished run on the same records: the new trees follow that model's. The release "
        "is that run's, and costs nothing.",
    )
    model: ModelSection = Field(ModelSection(), description="Objective and hyperparameters.")
    correct_noise: bool = Field(
        True, description="Whether to learn through the noise of columns whose codes are shared."
    )
    reveal: RevealSection = Field(RevealSection(), description="Score policy: how coarse scores are written.")
    http: HttpSection | None = Field(None, description="The HTTP service of `opboost serve`.")
    label_epsilon: Finite | None = Field(
        None, description="Grows trees on noised labels: what B sees of a record's label loses at most so much."
    )
    label_bounds: LabelBounds | None = Field(
        None, description="Public bounds of labels that are numbers, to which they are clipped for `label_epsilon`."
    )
    label_ledger: Path = Field(
        Path("runs/labels.sqlite"), description="The ledger of noised labels, one for all runs on the same people."
    )

    @property
    def kept_files(self) -> dict[str, Path]:
        return {} if self.label_epsilon is None else {"label_ledger": self.label_ledger}

    @property
    def grows_on_cluster(self) -> bool:
        """Whether a Dask cluster grows the trees; asked for by name, the native engine does on one machine."""
        return self.engine == "dask" and not (self.model.engine == "native" and "engine" in self.model.model_fields_set)

    @property
    def wiring(self) -> Wiring:
        return Wiring(self.passive, {}, self.listen)

    def budgets(self) -> Iterator[GivenBudget]:
        if self.label_epsilon is not None:
            yield GivenBudget.at("label_epsilon", self.label_epsilon)
        for i, peer in enumerate(self.passive):
            yield from given_budgets(f"passive.{i}.agreed", epsilon=peer.agreed.epsilon)

    @property
    def held_out_metrics(self) -> tuple[Metric, ...]:
        """Metrics of held-out records, the last of which decides when to stop early; none if they do not."""
        is_asked = self.model.early_stopping_rounds is not None or self.model.eval_metric
        may_choose = self.answers == "cells" and self.held_out and self.model.validation_fraction is None
        return self.model.metrics() if is_asked and may_choose else ()

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        may_choose = self.answers == "cells" and self.held_out and self.label_epsilon is None
        if self.model.early_stopping_rounds is not None and self.model.validation_fraction is None and not may_choose:
            raise ValueError(
                "model.early_stopping_rounds needs rows to validate on: model.validation_fraction, or held-out records "
                "with `answers: cells` and without `label_epsilon`"
            )
        if self.grows_on_cluster:
            self.model.check_partitions()
        if self.align.prepared is not None:
            raise ValueError("`align.prepared` is a passive party's, which prepares its ids")
        if self.http is not None and self.align.keys:
            raise ValueError("`http` scores records by ids, and `align.keys` compares other columns: leave one out")
        if self.grows_on_cluster and self.continue_from is not None:
            raise ValueError("continue_from is for a table in memory: leave it or `engine: dask` out")
        if self.label_epsilon is not None and self.continue_from is not None:
            raise ValueError("continue_from and label_epsilon do not go together: earlier trees saw the true labels")
        if self.label_epsilon is None and self.label_bounds is not None:
            raise ValueError("label_bounds go with label_epsilon")
        is_native = not self.grows_on_cluster and self.model.engine == "native" and self.model.booster == "gbtree"
        if self.label_epsilon is not None and not (is_native and not any(self.model.monotone_constraints.values())):
            raise ValueError("label_epsilon goes with the native engine, without DART and monotone constraints")
        parties = [self.party, *(peer.name for peer in self.passive)]
        if len(set(parties)) < len(parties):
            raise ValueError(f"parties must have distinct names; found {', '.join(parties)}")
        return self


class PassiveRun(_Run):
    """A passive party's run file."""

    role: Annotated[Literal["passive"], RoleName] = Field(description="The role; `host` is read as `passive`.")
    connect: ConnectAddress = Field(description="Address of the active party.")
    active: Peer = Field(description="The active party.")
    desensitize: DesensitizeSection = Field(DesensitizeSection(), description="Mechanisms and budgets of the columns.")
    opaque_names: bool = Field(True, description="Whether columns are offered under names that say nothing.")
    share_thresholds: bool = Field(False, description="Whether the active party gets thresholds and columns' schemas.")
    share_codes: bool = Field(
        True, description="Whether the active party gets the released codes of the ranks, which costs no privacy."
    )
    cells: Annotated[int, Field(ge=2, le=MOST_GRID_CELLS)] = Field(
        DEFAULT_CELLS, description="Cells of a column, at most, with `answers: cells`."
    )
    routed: RoutedSection = Field(
        RoutedSection(), alias="allow_routed", description="Whether records may be answered from exact values."
    )
    changed_values: Literal["redraw", "keep"] = Field(
        "redraw", description="Draw changed values anew, or keep the first draw."
    )
    seed: int | None = Field(None, description="Seed of the noise, for tests; charged as if there were no noise.")
    ledger: LedgerSection = Field(LedgerSection(), description="The privacy ledger and its limits.")
    serve: ServeSection = Field(ServeSection(), description="Limits on predictions.")

    @property
    def kept_files(self) -> dict[str, Path]:
        prepared = self.align.prepared
        return {"ledger.path": self.ledger.path, **({} if prepared is None else {"align.prepared": prepared})}

    @property
    def wiring(self) -> Wiring:
        return Wiring([self.active], {self.active.name: self.connect}, None)

    def budgets(self) -> Iterator[GivenBudget]:
        yield from self.desensitize.budgets()
        yield from self.ledger.budget.budgets()
        yield from given_budgets("active.agreed", epsilon=self.active.agreed.epsilon)

    @property
    def bits(self) -> rng.BitSource:
        """The source of random bits for the noise."""
        return rng.secure() if self.seed is None else rng.seeded(self.seed)

    @property
    def allow_routed(self) -> bool:
        """Whether new records may be answered from exact values."""
        return self.routed.new_records

    @property
    def n_cells(self) -> int | None:
        """Cells of a column; None where split tests are answered."""
        return self.cells if self.answers == "cells" else None

    @property
    def keeps(self) -> bool:
        """Whether a record's first draw is kept when its value changes."""
        return self.changed_values == "keep"

    def mechanisms(self, schema: TableSchema) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every column of the schema.

        Raises
        ------
        ConfigError, ParameterError
        """
        found = self.desensitize.mechanisms(schema)
        given = (loss_of(mechanism, f"desensitize.columns.{mechanism.schema.name}") for mechanism in found)
        try:
            check_protection(given, no_privacy=self.no_privacy)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return found
