"""The coordinator's side of the first rounds of the recommended recipe: queries, conclusions and announcements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opboost.arrays import Values
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.recommended.first_releases import (
    NumberRange,
    narrower_bounds,
    range_of_counts,
    score_of_half_sums,
    scores_of_counts,
    whole_range,
)
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.rows.client_rows import ClientHolder, Later
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.noisy_cells import N_COUNTED, cells_by_counts
from opboost.rng import BitSource
from opboost.trees.complete import tree_of

_ROOT = np.zeros(1, np.int32)


class FirstQuestions:
    """First rounds as the coordinator leads them.

    Parameters
    ----------
    holder : ClientHolder
        The sum of all workers' rows.
    rounds : FirstRounds
    rng : BitSource or None
        For Gaussian noise on the sums; None if they have their noise.

    Attributes
    ----------
    settled : list of float
        Leaf values of the rounds' trees so far, which `FirstRounds` interprets.
    """

    def __init__(self, holder: ClientHolder, rounds: FirstRounds, *, rng: BitSource | None) -> None:
        self._holder, self._rounds, self._rng = holder, rounds, rng
        self._number = -1
        self.settled: list[float] = []

    def run(self, grid: PublicGrid) -> tuple[Values, PublicGrid, Values | None]:
        """Run all rounds; returns the first scores, on the scale of training, the cells and what a screen released."""
        rounds, unit, balance = self._rounds, 1.0, 0.0
        if not rounds.n_classes:
            label_range = self._settle_range()
            unit, balance = label_range.unit, label_range.balance
        answer = self._ask()
        if rounds.n_classes:
            scores, _ = scores_of_counts(answer if rounds.n_classes > 2 else answer[::-1])
        else:
            scores, _ = score_of_half_sums(float(answer[0]), float(answer[1]))
        scores = leaf_values = scores / unit

        def count(cells: PublicGrid) -> Values:
            nonlocal leaf_values
            self._holder.place(rounds.counting(cells))
            self._settle(leaf_values)
            leaf_values = np.zeros(rounds.n_outputs)
            return self._ask().reshape(-1, N_COUNTED)

        placed = cells_by_counts(grid, count, std=rounds.std("cells"))
        if rounds.counted:
            self._holder.place(placed)
        self._settle(leaf_values)
        if "columns" not in rounds.kinds:
            return scores, placed, None
        if not rounds.n_classes:
            self._begin()
            self._settle([balance])
        screened = self._ask()
        self._settle(np.zeros(rounds.n_outputs))
        return scores, placed, screened

    def _settle_range(self) -> NumberRange:
        """Run the rounds on the range of most labels, and tell the bound of gradients; returns the range."""
        std, bounds = self._rounds.std("labels"), (-1.0, 1.0)
        counts = self._ask()
        narrower = narrower_bounds(counts, bounds, mu=self._rounds.plan.mu, std=std)
        for end in narrower or bounds:
            self._settle([end])
            self._begin()
        if narrower is None:
            label_range = whole_range(counts, bounds, std=std)
        else:
            label_range = range_of_counts(self._answer(), narrower, n_records=float(counts.sum()), std=std)
        self._settle([label_range.unit])
        return label_range

    def _ask(self) -> Values:
        """Begin the next round, and ask its question; returns the released numbers, in records."""
        self._begin()
        return self._answer()

    def _begin(self) -> None:
        self._number += 1
        self._kind = self._rounds.kinds[self._number]
        self._later: list[Later] = []
        for output in range(self._rounds.n_outputs):
            self._holder.start_tree(output)
            if self._kind == "score":
                self._later.append(self._holder.totals_later(_ROOT))

    def _answer(self) -> Values:
        kind, places = self._kind, self._rounds.released(self._kind)
        if kind == "score":
            sums = np.concatenate([totals().reshape(-1)[places] for totals in self._later])
        else:
            out = np.empty((1, 2, self._rounds.grid.axes.n_bins), np.int64)
            self._holder.write_histograms(_ROOT, out)
            sums = out.reshape(-1)[places]
        steps = self._rounds.steps(kind)
        noise = gaussian_noise(self._rounds.std(kind), steps)
        if self._rng is not None and noise is not None:
            sums = sums + noise.draw(len(sums), rng=self._rng.fork(f"first round {self._number}"))
        return np.asarray(sums / steps, dtype=np.float64)

    def _settle(self, values: Sequence[float] | Values) -> None:
        """Finish the round's trees, whose leaves have these values."""
        axes = self._rounds.grid.axes
        for value in values:
            self._holder.finish_tree(tree_of([], np.array([value]), axes))
            self.settled.append(float(value))
