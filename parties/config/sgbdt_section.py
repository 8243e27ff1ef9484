"""The `sgbdt` section of a horizontal run file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import Field

from opboost.horizontal.sgbdt.defaults import FOR_CLASSES, FOR_NUMBERS, LATER_RATE
from opboost.horizontal.sgbdt.training import SGBDTSettings
from parties.config.section import MOST_COUNT, NonNegative, Positive, Section

# The estimators' defaults; a test compares the two.
_DEFAULTS: dict[bool, dict[str, Any]] = {True: asdict(FOR_CLASSES), False: asdict(FOR_NUMBERS)}


class SGBDTSection(Section):
    """Parameters of S-GBDT, under the estimators' names; what is left out is as there.

    Where that depends on the objective, a placeholder stands there until the section is `completed`.
    """

    n_estimators: int = Field(
        default_factory=int,
        ge=1,
        le=MOST_COUNT,
        description="Number of trees; left out: 300 for classes, 150 for numbers.",
    )
    n_extra_estimators: int = Field(
        0, ge=0, le=MOST_COUNT, description="Further trees for records with budget left, with the filter."
    )
    use_filter: bool | None = Field(
        None, description="Whether records have individual privacy filters; by default with further trees."
    )
    max_depth: int = Field(
        default_factory=int, ge=0, le=12, description="Levels of a tree; left out: 3 for classes, 4 for numbers."
    )
    learning_rate: Positive = Field(
        default_factory=float, description="Factor of every leaf value; left out: 0.4 for classes, 1 for numbers."
    )
    max_grad: Positive = Field(
        default_factory=float, description="Bound on a record's gradient; left out: 0.5 for classes, 0.25 for numbers."
    )
    denominator_noise: Positive = Field(
        default_factory=float, description="Noise of a leaf's denominator over that of its gradients; left out: 2 or 6."
    )
    reg_lambda: NonNegative = Field(1.0, description="L2 regularisation of leaf values.")
    noise_lambda: NonNegative = Field(
        default_factory=float,
        description="Least regularisation per unit of noise; left out: 20 for classes, 35 for numbers.",
    )
    max_leaf: Positive = Field(2.0, description="Bound on leaf values.")
    columns_per_tree: int = Field(
        default_factory=int,
        ge=0,
        le=MOST_COUNT,
        description="Columns of a tree, 0 for all; left out: 1 for classes, 3 for numbers.",
    )
    subsample: float = Field(1.0, gt=0, le=1, description="Share of the records of each tree.")
    max_cells: int = Field(
        default_factory=int,
        ge=2,
        le=65535,
        description="Cells of a column's public grid; left out: 64 for classes, 32 for numbers.",
    )

    def completed(self, *, is_classification: bool) -> SGBDTSection:
        """The section with the defaults of classes or of numbers for what was left out."""
        defaults = _DEFAULTS[is_classification]
        return self.model_copy(update={name: defaults[name] for name in defaults.keys() - self.model_fields_set})

    @property
    def has_filter(self) -> bool:
        """Whether records have individual privacy filters."""
        return self.n_extra_estimators > 0 if self.use_filter is None else self.use_filter

    def settings(self, n_columns: int, *, is_printed: bool) -> SGBDTSettings:
        """Settings of the trees."""
        return SGBDTSettings(
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            noise_lambda=0.0 if is_printed else self.noise_lambda,
            max_leaf=self.max_leaf,
            columns_per_tree=min(self.columns_per_tree, n_columns),
            later_rate=1.0 if is_printed else LATER_RATE,
            floor=is_printed,
        )
