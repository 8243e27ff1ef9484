"""First rounds of the recommended recipe among owners: which numbers each releases, their noise, and what they settle.

Every round is a batch of trees of a single leaf, one per output; so workers check, answer and keep it like any other
batch. The coordinator announces what a round settled as the values of these leaves, and moves cells as between trees.

========  ==========================================  ==============================================================
round     question                                    settles
========  ==========================================  ==============================================================
labels    histogram of the root: 16 label cells       the lower end of the range of most labels; later, gradients' unit
upper     none                                        its upper end
score     totals of the root                          the first scores
cells     histogram of the root: 16 cells per column  cells
balance   none                                        the score of numbers at which the screen takes gradients
columns   histogram of the root: one number each      which of many columns to boost with; nothing is told
========  ==========================================  ==============================================================

Classes have no rounds about labels' range and no balance, and columns of categories no cells. Only many columns are
screened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.errors import AccountError, ParameterError
from opboost.horizontal.recommended.first_releases import LEAST_UNIT, N_LABEL_CELLS
from opboost.horizontal.recommended.plan import ScreenRelease, TrainingPlan, fixed_point_steps
from opboost.horizontal.recommended.tree_training import TreeTask, scaled_labels
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.noisy_cells import N_COUNTED, N_ROUNDS, counted_columns
from opboost.privacy.additive import Skellam
from opboost.privacy.releases import SkellamRounds

Round = Literal["labels", "upper", "score", "cells", "balance", "columns"]

# Fixed-point bits of a record in a count.
_BITS = 24

# A cut that no value exceeds.
_BEYOND = np.finfo(np.float64).max


@dataclass(frozen=True, slots=True)
class Start:
    """Scale and initial scores of the training, as the first rounds release them.

    Attributes
    ----------
    lower, upper : float
        Numbers beyond them are clipped; -1 and 1 for classes.
    unit : float
        Bound of gradients in halves of that range, in which the scores of training are.
    scores : ndarray of float64, shape (n_outputs,)
        Initial scores, on the scale of training.
    """

    lower: float
    upper: float
    unit: float
    scores: Values

    @property
    def centre(self) -> float:
        return (self.lower + self.upper) / 2

    @property
    def spread(self) -> float:
        """Size of a score of 1, in the unit of the labels."""
        return (self.upper - self.lower) / 2 * self.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRounds:
    """Public description of the first rounds.

    Attributes
    ----------
    grid : PublicGrid
        The even cells to begin with.
    label_bounds : (lower, upper)
        Of numbers.
    n_classes : int
        0 for numbers.
    plan : TrainingPlan

    Raises
    ------
    ParameterError
        If the columns have fewer cells than are counted.
    """

    grid: PublicGrid
    label_bounds: tuple[float, float]
    n_classes: int
    plan: TrainingPlan

    def __post_init__(self) -> None:
        if self.grid.n_cells < N_COUNTED or (not self.n_classes and 2 * self.grid.axes.n_bins < N_LABEL_CELLS):
            raise ParameterError(
                f"columns of numbers need at least {N_COUNTED} cells, and labels that are numbers columns of at least "
                f"{N_LABEL_CELLS // 2} cells in all; found {self.grid.n_cells} and {self.grid.axes.n_bins}"
            )

    @property
    def n_outputs(self) -> int:
        """Trees of a batch."""
        return self.n_classes if self.n_classes > 2 else 1

    @property
    def kinds(self) -> tuple[Round, ...]:
        """The rounds in their order."""
        label_rounds: tuple[Round, ...] = () if self.n_classes else ("labels", "upper", "labels")
        cell_rounds: list[Round] = ["cells"] * (N_ROUNDS * bool(self.counted))
        screen_rounds: tuple[Round, ...] = ("columns",) if self.n_classes else ("balance", "columns")
        return (*label_rounds, "score", *cell_rounds, *(screen_rounds if self.plan.n_screened else ()))

    @property
    def n_trees(self) -> int:
        """Trees of a single leaf."""
        return len(self.kinds) * self.n_outputs

    @property
    def counted(self) -> list[int]:
        """Columns whose cells are counted."""
        return counted_columns(self.grid)

    def std(self, kind: Round) -> float:
        """Deviation of the noise on each released number; 0 for none."""
        if kind == "columns":
            return self._screen.std
        stds = {"labels": self.plan.labels_std, "score": self.plan.score_std, "cells": self.plan.cells_std}
        return stds.get(kind, 0.0)

    @property
    def _screen(self) -> ScreenRelease:
        task = TreeTask.of_classes(self.n_classes) if self.n_classes else TreeTask.of_numbers(1.0)
        return self.plan.screen(task.sensitivity)

    def steps(self, kind: Round) -> float:
        """Steps of a record, or of a gradient of 1."""
        if kind == "columns":
            return self._screen.steps
        std = self.std(kind)
        return fixed_point_steps(std, _BITS) if std else 2.0**_BITS

    def released(self, kind: Round) -> NDArray[np.int64]:
        """Places of the released numbers in a flat answer; all others are 0 at every owner."""
        if kind == "cells":
            axes = self.grid.axes
            return axes.n_bins + np.add.outer(axes.offsets[self.counted], np.arange(N_COUNTED)).ravel()
        if kind == "columns":
            return self.grid.axes.offsets[:-1]
        return np.arange({"labels": N_LABEL_CELLS, "score": 1 + (self.n_classes <= 2)}.get(kind, 0))

    def skellam(self, kind: Round) -> Skellam:
        """Skellam noise of at least the deviation, in steps."""
        return Skellam.of_variance((self.std(kind) * self.steps(kind)) ** 2 * (1 + 1e-14))

    def skellam_releases(self) -> tuple[SkellamRounds, ...]:
        """All releases of the first rounds under Skellam noise: how many numbers a record moves in each, and how far.

        In a count a record is in one cell, of each column that is counted. Of a half-sum's two numbers it moves both.
        """
        moved: dict[Round, tuple[int, float, float]] = {
            "labels": (1, 1.0, 1.0),
            "score": (1 + (self.n_classes <= 2), 1.0, 1.0),
            "cells": (len(self.counted), 1.0, math.sqrt(len(self.counted))),
        }
        if self.plan.n_screened:
            moved["columns"] = (self.plan.n_screened, self._screen.bound, self._screen.l2)
        return tuple(
            SkellamRounds(
                mu=math.sqrt(self.kinds.count(kind)) * l2 / self.std(kind) * (1 + 1e-14),
                largest=(math.ceil(largest * self.steps(kind)),) * n_moved,
                variances=(self.skellam(kind).variance,) * n_moved,
                n_rounds=self.kinds.count(kind),
            )
            for kind, (n_moved, largest, l2) in moved.items()
            if kind in self.kinds
        )

    def counting(self, cells: PublicGrid) -> PublicGrid:
        """The grid whose first cells of every counted column are these; the others are empty."""
        all_cuts = list(self.grid.cuts)
        for column, cuts in zip(self.counted, cells.cuts, strict=True):
            all_cuts[column] = np.concatenate([cuts, np.full(self.grid.n_cells - 1 - len(cuts), _BEYOND)])
        return PublicGrid(self.grid.bounds, self.grid.n_cells, tuple(all_cuts), self.grid.categorical)

    def check(self, settled: Sequence[float]) -> None:
        """Refuse settled values by which no labels can be scaled.

        Raises
        ------
        AccountError
            If the range of numbers is not one of cells between the public bounds, or the bound of gradients or the
            balance is too small or too large.
        """
        if self.n_classes or len(settled) < 2:
            return
        is_of_cells = settled[0] >= -1 and settled[1] <= 1 and settled[1] - settled[0] >= 2 / N_LABEL_CELLS
        lower, upper = self.range_of(settled)
        if not (is_of_cells and (upper - lower) / 2 > 0):
            raise AccountError("the range of labels that was told has no cell in the bounds; nothing was released")
        if len(settled) > 2 and not LEAST_UNIT <= settled[2] <= 1:
            raise AccountError(
                f"the bound of gradients that was told is not in [{LEAST_UNIT}, 1]; nothing was released"
            )
        if len(settled) > self._balance_place and not -1 <= settled[self._balance_place] <= 1:
            raise AccountError("the score that was told for a screen is not in [-1, 1]; nothing was released")

    @property
    def _balance_place(self) -> int:
        """The number of the round that tells the balance; after all rounds if there is none."""
        kinds = self.kinds
        return kinds.index("balance") if "balance" in kinds else len(kinds)

    def range_of(self, settled: Sequence[float]) -> tuple[float, float]:
        """The range of numbers by the settled values, after `check`; the public bounds until both ends are settled."""
        lower, upper = self.label_bounds
        if len(settled) >= 2:
            centre, spread = (lower + upper) / 2, (upper - lower) / 2
            lower, upper = centre + spread * settled[0], centre + spread * settled[1]
        return lower, upper

    def start(self, settled: Sequence[float]) -> Start:
        """The start of training, by the settled values of all first rounds, after `check`."""
        if self.n_classes:
            return Start(-1.0, 1.0, 1.0, np.array(settled[: self.n_outputs]))
        return Start(*self.range_of(settled), settled[2], np.array(settled[3:4]))

    def screen_scores(self, settled: Sequence[float]) -> Values:
        """Scores at which the screen takes gradients, on the scale of training, shape ``(n_outputs,)``."""
        start = self.start(settled)
        return start.scores if self.n_classes else np.array([settled[self._balance_place] / start.unit])

    def tree_labels(self, labels: Values, start: Start) -> Values:
        """Labels on the scale of training, shape ``(n_outputs, n_rows)``."""
        if self.n_classes > 2:
            return (labels == np.arange(self.n_classes)[:, None]).astype(np.float64)
        return labels[None] if self.n_classes else scaled_labels(labels, start.lower, start.upper)[None] / start.unit
