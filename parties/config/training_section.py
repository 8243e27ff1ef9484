"""The `training` section of horizontal run files, which all parties share, and its form in messages."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.calibration import recommended_among_owners
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.schema import TableSchema
from opboost.table_format import TableFormat
from parties.config.federated_section import FederatedSection
from parties.config.protection import Delta, Epsilon, LabelBounds
from parties.config.reader_section import LABEL_TERM
from parties.config.section import PositiveCount, Section
from parties.config.sgbdt_section import SGBDTSection
from protocols.secure_aggregation.epochs import MAX_WORKERS

_RECIPES = {"recommended", "sgbdt", "federated"}

_WorkerCount = Annotated[int, Field(ge=2, le=MAX_WORKERS)]
ClassCount = Annotated[int, Field(ge=3, le=1000)]


class TaskSection(Section):
    """Objective and budget: the keys of a `training` section that all recipes have."""

    objective: Literal["binary:logistic", "reg:squarederror", "multi:softprob"] = Field(
        "binary:logistic", description="The loss."
    )
    label_bounds: LabelBounds | None = Field(None, description="Public bounds of a numeric label.")
    epsilon: Epsilon = Field(description="The epsilon of the guarantee, per record.")

    @model_validator(mode="after")
    def _check_label_bounds(self) -> Self:
        if self.is_classification != (self.label_bounds is None):
            raise ValueError("public `label_bounds` go with `reg:squarederror`, and with nothing else")
        return self

    @property
    def is_classification(self) -> bool:
        return self.objective != "reg:squarederror"

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for numbers."""
        return 2 if self.is_classification else 0

    def task(self, names: tuple[str, ...], grid: PublicGrid) -> PublicTask:
        """The public task of the training, on these columns."""
        lower, upper = self.label_bounds or (-1.0, 1.0)
        centre, spread = (lower + upper) / 2, (upper - lower) / 2
        return PublicTask(names, grid, centre, spread, self.epsilon, True, self.is_classification)

    def agreed(self, *, exclude_none: bool = False) -> dict[str, JsonValue]:
        """Every setting as plain values, epsilon as a number even if it is infinite."""
        return {**self.model_dump(mode="json", exclude_none=exclude_none), "epsilon": self.epsilon}

    def terms(self, schema: TableSchema) -> dict[str, JsonValue]:
        """The settings as they travel, with digests of what is public about the columns, and of the labels' words."""
        columns = [asdict(column) for column in schema.columns]
        return {"schema": _digest(columns), **_label_terms(schema.format), **flat(self.agreed())}


class RecommendedSection(Section):
    """Parameters of the recommended recipe. Everything but `records` may be left out."""

    records: PositiveCount | None = Field(
        None, description="About how many records all workers have together: public, and only sizes follow from it."
    )
    n_estimators: PositiveCount | None = Field(None, description="Number of trees; by default from budget and records.")
    max_depth: int | None = Field(None, ge=1, le=12, description="Levels of a tree; by default from the same.")
    max_cells: int = Field(64, ge=16, le=65535, description="Cells of a column, which follow noisy counts.")

    def recipe(
        self, task: PublicTask, *, n_classes: int, delta: float, n_honest: int | None, are_owners_known: bool
    ) -> RecommendedAmongOwners:
        """The recipe for a task on `max_cells` even cells; with `n_honest`, owners add the noise in shares."""
        return recommended_among_owners(
            task,
            n_classes=n_classes,
            delta=delta,
            n_records=self.records or 1,
            n_honest=n_honest,
            sizes=GivenSizes(self.n_estimators, self.max_depth),
            are_owners_known=are_owners_known,
        )


class TrainingSection(TaskSection):
    """The `training` section of a coordinator and its workers, the same at all of them.

    `noise` says who draws it: the ``aggregator``, which then sees exact sums, or the ``workers`` in shares, of which
    any `honest` make up the whole. Every sum is over at least `threshold` of the `workers`. With `known_workers`, the
    default in run files with a `secret_key`, every worker has the others' public keys, and no coordinator can make up
    workers. In ``paper`` mode every worker draws noise of its own.
    """

    recipe: Literal["recommended", "sgbdt", "federated"] = Field(
        "recommended", description="The training algorithm; left out, that of the section there is, or `recommended`."
    )
    mode: Literal["certified", "paper"] = Field(
        "certified", description="The certified recipe, or the letter of its paper."
    )
    delta: Delta = Field(description="The delta of the guarantee, per record.")
    noise: Literal["aggregator", "workers"] = Field(
        "workers", description="Who draws noise; an `aggregator` sees exact sums."
    )
    workers: _WorkerCount = Field(description="Number of workers.")
    threshold: _WorkerCount = Field(description="Least workers in a sum; more than half.")
    honest: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Workers in every sum that are sure to add noise."
    )
    known_workers: bool | None = Field(
        None, description="Whether workers have each other's keys; by default with a `secret_key`."
    )
    sgbdt: SGBDTSection = Field(SGBDTSection(), validate_default=True, description="Parameters of S-GBDT.")
    federated: FederatedSection = Field(FederatedSection(), description="Parameters of the federated framework.")
    recommended: RecommendedSection = Field(RecommendedSection(), description="Parameters of the recommended recipe.")
    classes: ClassCount | None = Field(
        None, description="Number of classes of `multi:softprob`, which the labels number 0, 1, 2, ..."
    )

    @model_validator(mode="before")
    @classmethod
    def _take_recipe_of_section(cls, given: object) -> object:
        if isinstance(given, Mapping) and "recipe" not in given:
            named = {name for name in _RECIPES if given.get(name) is not None}
            return {**given, "recipe": min(named)} if len(named) == 1 else given
        return given

    @field_validator("recipe", mode="before")
    @classmethod
    def _check_recipe(cls, recipe: object) -> object:
        if recipe == "dpboost":
            raise ValueError(
                "DPBoost chooses splits from exact histograms, for which a worker has no privacy accounting; it runs "
                "in one process only"
            )
        return recipe

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.workers < 2 * self.threshold <= 2 * self.workers:
            raise ValueError("`threshold` must be more than half of the `workers` and at most all of them")
        if others := self._other_sections & self.model_fields_set:
            raise ValueError(f"there is a section `{min(others)}`, but the recipe is {self.recipe}")
        if self.mode == "paper" and self.recipe != "sgbdt":
            raise ValueError("`mode: paper` of this recipe is for comparison in one process: name sgbdt, or no mode")
        if self.mode == "paper" and self.noise != "workers":
            raise ValueError("in `mode: paper` every worker draws its own noise: say `noise: workers`")
        if self.mode == "paper" and math.isinf(self.epsilon):
            raise ValueError("`mode: paper` is about noise: it needs a finite `epsilon`")
        is_shared = self.mode == "certified" and self.noise == "workers"
        if is_shared != (self.honest is not None):
            raise ValueError("`honest`, how many workers are sure to add their share, goes with noise in shares alone")
        if self.honest is not None and self.honest > self.threshold:
            raise ValueError("a sum may be over `threshold` workers, so no more than these can be promised as `honest`")
        if is_shared and self.recipe == "sgbdt" and self.sgbdt.subsample < 1:
            raise ValueError("noise in shares has no privacy accounting of sampled records: leave `subsample` at 1")
        return self

    @model_validator(mode="after")
    def _check_recommended(self) -> Self:
        if self.recipe == "recommended" and self.recommended.records is None:
            raise ValueError(
                "the recommended recipe needs `recommended: {records: ...}`, about how many all have; a run file that "
                "named no recipe meant `recipe: sgbdt` in earlier builds"
            )
        if (self.objective == "multi:softprob") != (self.classes is not None):
            raise ValueError("`classes`, how many there are, goes with `multi:softprob` alone")
        if self.classes is not None and self.recipe != "recommended":
            raise ValueError(f"several classes need `recipe: recommended`; found {self.recipe}")
        return self

    @field_validator("sgbdt")
    @classmethod
    def _complete(cls, sgbdt: SGBDTSection, info: ValidationInfo) -> SGBDTSection:
        return sgbdt.completed(is_classification=info.data.get("objective") != "reg:squarederror")

    def agreed(self, *, exclude_none: bool = False) -> dict[str, JsonValue]:
        """Every setting but those of the recipe that is not trained."""
        found = super().agreed(exclude_none=exclude_none)
        return {name: value for name, value in found.items() if name not in self._other_sections}

    @property
    def n_classes(self) -> int:
        return self.classes or super().n_classes

    @property
    def _other_sections(self) -> set[str]:
        """Sections of the recipes that are not trained."""
        return _RECIPES - {self.recipe}


def _label_terms(form: TableFormat) -> dict[str, JsonValue]:
    """A digest of the labels that mean 1 and 0, in the form in which they are compared; nothing where none is listed.

    How numbers and empty cells are written is each owner's own, and no part of it.
    """
    if not form.positive:
        return {}
    return {LABEL_TERM: _digest(form.label_words)}


def _digest(described: object) -> str:
    return hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()


def flat(settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Flatten settings: those of each section get a dotted key."""
    found: dict[str, JsonValue] = {}
    for name, value in settings.items():
        found |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    return found
