"""Run files of a chain of owners (InPrivate): one per owner; all share their `training` section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.schema import TableSchema
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.horizontal import HorizontalRun, WorkerLedgerSection
from parties.config.party_run import NamedKey, Wiring
from parties.config.protection import GivenBudget, given_budgets
from parties.config.section import NonNegative, PlainName, Positive, Section
from parties.config.training_section import TaskSection

# An owner's tree goes to all others, so that connections grow with the square of their number.
MAX_OWNERS = 50


class InPrivateSection(Section):
    """Parameters of InPrivate, under the estimators' names and with their defaults."""

    n_rounds: int = Field(1, ge=1, le=60, description="Turns of every owner.")
    max_depth: int = Field(3, ge=0, le=12, description="Levels of a tree.")
    learning_rate: Positive = Field(0.5, description="Factor of every leaf value.")
    reg_lambda: NonNegative = Field(1.0, description="L2 regularisation of leaf values.")
    noise_lambda: NonNegative = Field(2.0, description="Least regularisation per unit of noise.")
    max_residual: Positive | None = Field(
        None, description="Bound on residuals; by default 1 for classes, 0.3 for numbers."
    )
    max_cells: int = Field(32, ge=2, le=65535, description="Cells of a column's public grid.")


class ChainSection(TaskSection):
    """The `training` section of a chain, the same at all owners; `order` lists them in the order of their turns."""

    recipe: Literal["inprivate"] = Field("inprivate", description="The training algorithm.")
    order: Annotated[tuple[PlainName, ...], Field(min_length=2, max_length=MAX_OWNERS)] = Field(
        description="The owners, in the order of their turns."
    )
    broadcast: bool = Field(True, description="Whether a tree goes to all owners at once, or along the order.")
    inprivate: InPrivateSection = Field(InPrivateSection(), description="Parameters of InPrivate.")

    @field_validator("objective")
    @classmethod
    def _check_objective(cls, objective: str) -> str:
        if objective == "multi:softprob":
            raise ValueError("a chain trains on two classes or on numbers; several classes need a coordinator")
        return objective

    @field_validator("order")
    @classmethod
    def _check_order(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) < len(order):
            raise ValueError("`order` must name every owner once")
        return order

    def recipe_for(self, schema: TableSchema) -> InPrivateAmongOwners:
        """The recipe of the owners, for rows of this schema."""
        settings = self.inprivate.model_dump(exclude={"max_cells", "max_residual"})
        max_residual = self.inprivate.max_residual or (1.0 if self.is_classification else 0.3)
        recipe = InPrivateAmongOwners(
            task=self.task(
                schema.names,
                PublicGrid(
                    [column.bounds for column in schema.columns], self.inprivate.max_cells, categorical=schema.unordered
                ),
            ),
            settings=InPrivateSettings(**settings, max_residual=max_residual),
        )
        recipe.task.check_scores(
            self.inprivate.n_rounds * len(self.order), recipe.score_scale * recipe.settings.max_value
        )
        return recipe


class OtherOwner(NamedKey):
    """Another owner, its public key file, and its address if this party is the one that connects."""

    connect: ConnectAddress | None = Field(None, description="Its address, if this party is the one that connects.")


class OwnerRun(HorizontalRun):
    """An owner's run file. Of every two owners one connects and the other one listens."""

    role: Literal["owner"] = Field(description="The role.")
    data: Path = Field(description="Data file of the owner's rows.")
    listen: ListenAddress | None = Field(None, description="Address that other owners connect to.")
    owners: tuple[OtherOwner, ...] = Field(description="All other owners.")
    ledger: WorkerLedgerSection = Field(WorkerLedgerSection(), description="The privacy ledger and its limits.")
    training: ChainSection = Field(description="What all owners agreed on.")

    @property
    def kept_files(self) -> dict[str, Path]:
        return {"ledger.path": self.ledger.path}

    @property
    def wiring(self) -> Wiring:
        calls = {owner.name: owner.connect for owner in self.owners if owner.connect is not None}
        return Wiring(self.owners, calls, self.listen)

    def budgets(self) -> Iterator[GivenBudget]:
        yield from given_budgets("training", epsilon=self.training.epsilon)
        yield from self.ledger.budgets()

    @model_validator(mode="after")
    def _check_owners(self) -> Self:
        names = sorted((self.party, *(owner.name for owner in self.owners)))
        if names != sorted(self.training.order):
            raise ValueError(
                f"`owners` must list the others of `training.order`, which are "
                f"{', '.join(name for name in self.training.order if name != self.party)}; this party is {self.party}"
            )
        if self.listen is None and any(owner.connect is None for owner in self.owners):
            raise ValueError("owners without an address to `connect` to come here, which needs an address to `listen`")
        return self
