"""Run files of a chain of owners (InPrivate): one per owner, with a `training` section that all must share.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.schema import TableSchema
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.horizontal import HorizontalRun, WorkerLedgerSection, read_common
from parties.config.protection import Epsilon, LabelBounds, check_protection, given_budgets
from parties.config.section import Section
from parties.config.training_section import terms_of
from parties.config.vertical import Name
from parties.ledger.model_ledger import RunCharge

# An owner's tree goes to all others, so that connections grow with the square of their number.
MAX_OWNERS = 50

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Least0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class InPrivateSection(Section):
    """Parameters of InPrivate, under the estimators' names and with their defaults."""

    n_rounds: int = Field(1, ge=1, le=60, description="Turns of every owner.")
    max_depth: int = Field(3, ge=0, le=12, description="Levels of a tree.")
    learning_rate: _Positive = Field(0.5, description="Factor of every leaf value.")
    reg_lambda: _Least0 = Field(1.0, description="L2 regularisation of leaf values.")
    noise_lambda: _Least0 = Field(2.0, description="Least regularisation per unit of noise.")
    max_residual: _Positive | None = Field(
        None, description="Bound on residuals; by default 1 for classes, 0.3 for numbers."
    )
    max_cells: int = Field(32, ge=2, le=65535, description="Cells of a column's public grid.")


class ChainSection(Section):
    """What all owners must have agreed on; `order` names them in the order of their turns."""

    recipe: Literal["inprivate"] = Field("inprivate", description="The training algorithm.")
    objective: Literal["binary:logistic", "reg:squarederror"] = Field("binary:logistic", description="The loss.")
    label_bounds: LabelBounds | None = Field(None, description="Public bounds of a numeric label.")
    epsilon: Epsilon = Field(description="The epsilon of the guarantee, per record.")
    order: Annotated[tuple[Name, ...], Field(min_length=2, max_length=MAX_OWNERS)] = Field(
        description="The owners, in the order of their turns."
    )
    broadcast: bool = Field(True, description="Whether a tree goes to all owners at once, or along the order.")
    inprivate: InPrivateSection = Field(InPrivateSection(), description="Parameters of InPrivate.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.order)) < len(self.order):
            raise ValueError("`order` must name every owner once")
        if (self.objective == "reg:squarederror") != (self.label_bounds is not None):
            raise ValueError("public `label_bounds` go with `reg:squarederror`, and with nothing else")
        return self

    def terms(self, schema: TableSchema) -> dict[str, JsonValue]:
        """The same as it travels, with a digest of what is public about the columns."""
        return {**terms_of(self, schema), "epsilon": self.epsilon}

    def recipe_for(self, schema: TableSchema) -> InPrivateAmongOwners:
        """What the owners do with rows of this schema."""
        section, is_classification = self.inprivate, self.objective == "binary:logistic"
        lower, upper = self.label_bounds or (-1.0, 1.0)
        task = PublicTask(
            schema.names,
            PublicGrid([column.bounds for column in schema.columns], section.max_cells),
            (lower + upper) / 2,
            (upper - lower) / 2,
            self.epsilon,
            True,
            is_classification,
        )
        settings = InPrivateSettings(
            n_rounds=section.n_rounds,
            max_depth=section.max_depth,
            learning_rate=section.learning_rate,
            reg_lambda=section.reg_lambda,
            noise_lambda=section.noise_lambda,
            max_residual=section.max_residual or (1.0 if is_classification else 0.3),
        )
        return InPrivateAmongOwners(task=task, settings=settings)


class OtherOwner(Section):
    """Another owner, its public key file, and its address if this party is the one that connects."""

    name: Name = Field(description="The owner's name.")
    public_key: Path | None = Field(None, description="Its public key file.")
    connect: ConnectAddress | None = Field(None, description="Its address, if this party is the one that connects.")


class OwnerRun(HorizontalRun):
    """An owner's run file. Of every two owners one connects and the other one listens."""

    role: Literal["owner"] = Field(description="The role.")
    data: Path = Field(description="Data file of the owner's rows.")
    listen: ListenAddress | None = Field(None, description="Address that other owners connect to.")
    owners: tuple[OtherOwner, ...] = Field(description="All other owners.")
    ledger: WorkerLedgerSection = Field(WorkerLedgerSection(), description="The privacy ledger and its limits.")
    training: ChainSection = Field(description="What all owners agreed on.")

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        given = [*given_budgets("training", epsilon=self.training.epsilon), *self.ledger.budgets()]
        check_protection(given, no_privacy=self.no_privacy)
        return self

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

    def charge(self, recipe: InPrivateAmongOwners) -> RunCharge:
        """What the run costs each of this owner's records."""
        return self.charge_for(recipe.guarantee(is_secure=True), f"chain of {', '.join(self.training.order)}")


def read_owner(path: Path) -> OwnerRun:
    """Read an owner's run file.

    Raises
    ------
    ConfigError
        Naming the file, the key, what was found and what is allowed.
    """
    run, folder = read_common(path, OwnerRun)
    update: dict[str, Any] = {
        "data": folder / run.data,
        "ledger": run.ledger.model_copy(update={"path": folder / run.ledger.path}),
        "owners": tuple(
            owner if owner.public_key is None else owner.model_copy(update={"public_key": folder / owner.public_key})
            for owner in run.owners
        ),
    }
    return run.model_copy(update=update)
