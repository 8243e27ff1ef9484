"""Run files: one YAML file per party and run, checked as a whole before anything else happens.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from opboost.desensitize import ColumnMechanism
from opboost.schema import TableSchema
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.agreed_terms import AgreedSection
from parties.config.align_section import AlignSection
from parties.config.cluster_section import DaskSection
from parties.config.desensitize_section import DesensitizeSection
from parties.config.model_section import ModelSection
from parties.config.protection import Epsilon, Finite, GivenBudget, budgets_of, check_protection, given_budgets
from parties.config.score_policy import RevealSection
from parties.config.section import Section
from parties.config.serve_section import ServeSection
from parties.errors import ConfigError
from parties.ledger.budget import Budget, Limit
from protocols.transport.channel import Timing
from protocols.transport.keys import NAME_PATTERN

# FATE's names for the roles, accepted here and nowhere else.
_ALIASES = {"guest": "active", "host": "passive"}

# Of training on rows that are divided between owners; `parties.config.record_runs` reads their run files.
HORIZONTAL_ROLES = ("coordinator", "worker", "owner")

Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Bits = Annotated[float, Field(ge=0)]
RoleName = BeforeValidator(lambda value: _ALIASES.get(value, value) if isinstance(value, str) else value)


class Peer(Section):
    """Another party: its name, its public key file, and what was agreed that it does."""

    name: Name = Field(description="The other party's name.")
    public_key: Path | None = Field(None, description="Its public key file.")
    agreed: AgreedSection = Field(AgreedSection(), description="What was agreed that it does.")


class LimitSection(Section):
    """The most that may be spent of one column; what is left out is not limited."""

    epsilon: Epsilon | None = Field(None, description="Most epsilon of a column, per step of its own.")
    category_epsilon: Epsilon | None = Field(None, description="The same for categories and empty cells.")
    cell_bits: Bits | None = Field(None, description="Most bits of cells that a Local-Map publishes.")

    def limit(self) -> Limit:
        """The same for the ledger."""
        return Limit(self.epsilon, self.category_epsilon, self.cell_bits)


class BudgetSection(LimitSection):
    """What may be spent over all runs: of every column, of some columns instead, and of one record in all."""

    columns: dict[str, LimitSection] = Field({}, description="Limits of single columns, in place of those of all.")
    per_record: Finite | None = Field(None, description="Most epsilon of a record over all columns.")
    cell_bits_per_record: Bits | None = Field(None, description="Most bits of cells of a record.")

    def budgets(self) -> Iterator[GivenBudget]:
        """The limits by their places in the run file."""
        for name in (None, *self.columns):
            own, place = (self, "") if name is None else (self.columns[name], f".columns.{name}")
            limits = {"epsilon": own.epsilon, "category_epsilon": own.category_epsilon}
            yield from given_budgets(f"ledger.budget{place}", **limits)

    def budget(self, schema: TableSchema) -> Budget:
        """The limits, checked against the columns there are."""
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown:
            raise ConfigError(f"ledger.budget.columns names columns that the schema lacks: {', '.join(unknown)}")
        columns = {name: own.limit() for name, own in self.columns.items()}
        return Budget(self.limit(), columns, self.per_record, self.cell_bits_per_record)


class LedgerSection(Section):
    """Where the passive party keeps account of its releases, for all its runs, and what it allows."""

    path: Path = Field(Path("runs/ledger.sqlite"), description="The ledger, one for all runs on the same people.")
    budget: BudgetSection = Field(BudgetSection(), description="The most that may be spent over all runs.")


class _Run(Section):
    party: Name = Field(description="This party's name.")
    run_id: Name = Field(description="Name of the run, the same on all sides.")
    data: Path = Field(description="Data file, CSV or Parquet; with `engine: dask` also a folder.")
    table_schema: Path = Field(alias="schema", description="Schema file of the data.")
    ids: Path | None = Field(None, description="File that lists the records to use, the same at all parties.")
    align: AlignSection = Field(AlignSection(), description="How common records are found.")
    secret_key: Path | None = Field(None, description="This party's secret key file.")
    timeout: float = Field(10.0, gt=0, le=3600, description="Seconds of silence after which a peer counts as lost.")
    wait: float = Field(60.0, gt=0, le=7 * 24 * 3600, description="Seconds to look for the peers after the start.")
    stall: float = Field(
        900.0,
        gt=0,
        le=7 * 24 * 3600,
        description="Seconds without a sign of life of a peer's program until it counts as hung.",
    )
    folder: Path | None = Field(None, description="Run folder; by default `runs/RUN_ID` beside the run file.")
    report: bool = Field(True, description="Whether reports are written.")
    engine: Literal["dask"] | None = Field(None, description="Whether a Dask cluster does this party's work.")
    dask: DaskSection = Field(DaskSection(), description="The cluster, with `engine: dask`.")
    no_privacy: bool = Field(False, description="Allows budgets that protect nothing.")

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine is None and "dask" in self.model_fields_set:
            raise ValueError("the section `dask` goes with `engine: dask`")
        if self.engine == "dask" and self.align.method_for(self.ids) != "prealigned":
            raise ValueError(
                "engine: dask takes records that all parties have in common already: give `align: {method: prealigned}`"
                f", which all parties must; found {self.align.method_for(self.ids)}"
            )
        return self

    @property
    def timing(self) -> Timing:
        return Timing(timeout_s=self.timeout, wait_s=self.wait, stall_s=self.stall)

    @property
    def run_folder(self) -> Path:
        assert self.folder is not None
        return self.folder


class ActiveRun(_Run):
    """The active party's run file; `no_privacy` lifts the bounds of `parties.config.protection`, in every role's."""

    role: Annotated[Literal["active"], RoleName] = Field(description="The role; `guest` is read as `active`.")
    listen: ListenAddress = Field(description="Address that passive parties connect to.")
    passive: Annotated[tuple[Peer, ...], Field(min_length=1)] = Field(description="The passive parties.")
    model: ModelSection = Field(ModelSection(), description="Objective and hyperparameters.")
    correct_noise: bool = Field(
        True, description="Whether to learn through the noise of columns whose codes are shared."
    )
    reveal: RevealSection = Field(RevealSection(), description="Score policy: how coarse scores are written.")

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        agreed = (given_budgets(f"passive.{i}.agreed", epsilon=p.agreed.epsilon) for i, p in enumerate(self.passive))
        check_protection(chain.from_iterable(agreed), no_privacy=self.no_privacy)
        return self

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.engine == "dask":
            self.model.check_partitions()
        return self


class PassiveRun(_Run):
    """A passive party's run file."""

    role: Annotated[Literal["passive"], RoleName] = Field(description="The role; `host` is read as `passive`.")
    connect: ConnectAddress = Field(description="Address of the active party.")
    active: Peer = Field(description="The active party.")
    desensitize: DesensitizeSection = Field(DesensitizeSection(), description="Mechanisms and budgets of the columns.")
    opaque_names: bool = Field(True, description="Whether columns are offered under names that say nothing.")
    share_thresholds: bool = Field(False, description="Whether the active party gets thresholds.")
    share_codes: bool = Field(
        True, description="Whether the active party gets the released codes of the ranks, which costs no privacy."
    )
    allow_routed: bool = Field(True, description="Whether new records may be answered from exact values.")
    changed_values: Literal["redraw", "keep"] = Field(
        "redraw", description="Draw changed values anew, or keep the first draw."
    )
    seed: int | None = Field(None, description="Seed of the noise, for tests; charged as if there were no noise.")
    ledger: LedgerSection = Field(LedgerSection(), description="The privacy ledger and its limits.")
    serve: ServeSection = Field(ServeSection(), description="Limits on predictions.")

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        try:
            agreed = given_budgets("active.agreed", epsilon=self.active.agreed.epsilon)
            given = [*self.desensitize.budgets(), *self.ledger.budget.budgets(), *agreed]
        except ConfigError as error:
            raise ValueError(str(error)) from None
        check_protection(given, no_privacy=self.no_privacy)
        return self

    def mechanisms(self, schema: TableSchema) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every column of the schema.

        Raises
        ------
        ConfigError, ParameterError
        """
        found = self.desensitize.mechanisms(schema)
        given = (budgets_of(one.settings, f"desensitize.columns.{one.schema.name}") for one in found)
        try:
            check_protection(chain.from_iterable(given), no_privacy=self.no_privacy)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return found


Run = ActiveRun | PassiveRun
