"""Run files: one YAML file per party and run, checked as a whole before anything else happens.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Peer(_Section):
    """Another party: its name, its public key file, and what was agreed that it does."""

    name: Name
    public_key: Path | None = None
    agreed: AgreedSection = AgreedSection()


class LimitSection(_Section):
    """The most that may be spent of one column; what is left out is not limited."""

    epsilon: Epsilon | None = None
    category_epsilon: Epsilon | None = None
    cell_bits: Bits | None = None

    def limit(self) -> Limit:
        """The same for the ledger."""
        return Limit(self.epsilon, self.category_epsilon, self.cell_bits)


class BudgetSection(LimitSection):
    """What may be spent over all runs: of every column, of some columns instead, and of one record in all."""

    columns: dict[str, LimitSection] = {}
    per_record: Finite | None = None
    cell_bits_per_record: Bits | None = None

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


class LedgerSection(_Section):
    """Where the passive party keeps account of its releases, for all its runs, and what it allows."""

    path: Path = Path("runs/ledger.sqlite")
    budget: BudgetSection = BudgetSection()


class _Run(_Section):
    party: Name
    run_id: Name
    data: Path
    table_schema: Path = Field(alias="schema")
    ids: Path | None = None
    align: AlignSection = AlignSection()
    secret_key: Path | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 10.0
    wait: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 60.0
    stall: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 900.0
    folder: Path | None = None
    report: bool = True
    engine: Literal["dask"] | None = None
    dask: DaskSection = DaskSection()
    no_privacy: bool = False

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
    """The active party's run file."""

    role: Annotated[Literal["active"], RoleName]
    listen: ListenAddress
    passive: Annotated[tuple[Peer, ...], Field(min_length=1)]
    model: ModelSection = ModelSection()
    reveal: RevealSection = RevealSection()

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

    role: Annotated[Literal["passive"], RoleName]
    connect: ConnectAddress
    active: Peer
    desensitize: DesensitizeSection = DesensitizeSection()
    opaque_names: bool = True
    share_thresholds: bool = False
    allow_routed: bool = True
    changed_values: Literal["redraw", "keep"] = "redraw"
    seed: int | None = None
    ledger: LedgerSection = LedgerSection()
    serve: ServeSection = ServeSection()

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
