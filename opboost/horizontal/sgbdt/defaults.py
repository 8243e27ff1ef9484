"""Default parameters of S-GBDT, for the estimators and for run files.

Chosen by cross-validation inside the first training fold of four tables of classes and five of numbers, once for all
budgets from 0.1 to 4, by the mean over tables and budgets; no test fold was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SGBDTDefaults:
    """The defaults that differ between classes and numbers, under the estimators' names."""

    n_estimators: int
    learning_rate: float
    max_grad: float
    denominator_noise: float
    noise_lambda: float
    columns_per_tree: int
    max_cells: int
    max_depth: int


# Share of the learning rate for records that have arrived since, where those before have spent their budget.
LATER_RATE = 0.25

FOR_CLASSES = SGBDTDefaults(
    n_estimators=300,
    learning_rate=0.4,
    max_grad=0.5,
    denominator_noise=2.0,
    noise_lambda=20.0,
    columns_per_tree=1,
    max_cells=64,
    max_depth=3,
)
FOR_NUMBERS = SGBDTDefaults(
    n_estimators=150,
    learning_rate=1.0,
    max_grad=0.25,
    denominator_noise=6.0,
    noise_lambda=35.0,
    columns_per_tree=3,
    max_cells=32,
    max_depth=4,
)
