"""Adj-Map (OpBoost, VLDB 2023, section 4.2): a noisy cell, then noise inside it; and its exact privacy loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Positions
from opboost.errors import ParameterError, check_positive
from opboost.privacy.laws import LEAST_EPSILON, ROUND_UP, Kernel, kernel
from opboost.privacy.order_preserving import GlobalMap, LocalMap, PartitionedMap
from opboost.privacy.sampling import draw
from opboost.rng import BitSource

# Points up to which the loss curve of an Adj-Map with uneven cells is found, by looking at all distances.
MAX_UNEVEN_DOMAIN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjMap(PartitionedMap):
    """Adj-Map: noise on the cell's index, then noise inside the drawn cell.

    Inside the drawn cell the law is centred on the input if that is its own cell, else on the edge nearest to it.

    Parameters
    ----------
    epsilon : float
        One budget, split as ``eps_ner = epsilon / (alpha + theta / n)`` and ``eps_prt = alpha * theta * eps_ner``.
    domain : IntegerDomain
    law : Law or str
    theta : int, optional
        Width of the cells; or give `partition`, whose mean width then stands for theta in the split of the budget.
    partition : Partition, optional
    alpha : float
        Share of the budget that goes to the cells' indices, positive.

    Notes
    -----
    Privacy: ``(eps_prt, eps_ner)``-Partition-dLDP; at most ``borders crossed * eps_prt + (widest - 1) * eps_ner``,
    times ``law.promise``. It is **not** epsilon-dLDP: neighbours on two sides of a border lose several times epsilon.
    Compare it with Global-Map by `loss`, never by epsilon.
    """

    name: ClassVar[str] = "adj"
    alpha: float = 1.0
    outer: Kernel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        PartitionedMap.__post_init__(self)
        check_positive("alpha", self.alpha)
        for place, part in (("inside", self.epsilon_ner), ("between", self.epsilon_prt)):
            if not (part >= LEAST_EPSILON and (math.isfinite(part) or math.isinf(self.epsilon))):
                raise ParameterError(
                    f"alpha {self.alpha:g} leaves a budget of {part:g} {place} cells; at least {LEAST_EPSILON:g} is "
                    "needed, and a finite number. Nothing was drawn"
                )
        self._set_inner(self.epsilon_ner)
        object.__setattr__(self, "outer", kernel(self.law, self.cells.n_cells, self.epsilon_prt))

    @property
    def width(self) -> float:
        """theta, or the mean width of an uneven partition."""
        return float(self.theta) if self.theta is not None else self.domain.size / self.cells.n_cells

    @property
    def epsilon_ner(self) -> float:
        """Budget per point inside a cell."""
        return self.epsilon / (self.alpha + self.width / self.domain.size)

    @property
    def epsilon_prt(self) -> float:
        """Budget per border between cells."""
        return self.alpha * self.width * self.epsilon_ner

    def partition_bound(self, t: int) -> float:
        """The Partition-dLDP bound at distance `t`, with the number of borders that `t` points can cross at most."""
        if t > 0 and math.isinf(self.epsilon):
            return math.inf
        borders = self.cells.cell_starts[1:]
        crossed = np.searchsorted(borders, borders + t - 1, side="right") - np.arange(len(borders))
        n_borders = int(crossed.max(initial=0)) if t > 0 else 0
        bound = n_borders * self.epsilon_prt + (int(self.cells.widths.max()) - 1) * self.epsilon_ner
        return self.law.promise * bound * ROUND_UP

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(n, n)``."""
        points = np.arange(self.domain.size)
        cell = self.cells.cell_of(points)
        table = self.outer.log_probabilities()[cell][:, cell]
        for j, (start, width) in enumerate(zip(self.cells.cell_starts, self.cells.widths, strict=True)):
            inner = self.inner[self.inner_of_width[width]].log_probabilities()
            table[:, cell == j] += inner[np.clip(points - start, 0, width - 1)]
        return table

    @property
    def has_exact_loss(self) -> bool:
        """Whether `loss` can be found; elsewhere there is `partition_bound`."""
        return self.cells.even_width is not None or self.domain.size <= MAX_UNEVEN_DOMAIN

    def loss(self, t: int) -> float:
        """Exact loss between inputs at distance at most `t`.

        The worst output is in the first input's own cell. With even cells the loss rises with the distance, so the
        pairs exactly `t` apart decide; with uneven ones all distances up to `t` are looked at.

        Raises
        ------
        ParameterError
            If the cells are uneven and the domain has more than `MAX_UNEVEN_DOMAIN` points.
        """
        t = min(int(t), self.domain.size - 1)
        if t <= 0:
            return 0.0
        if math.isinf(self.epsilon):
            return math.inf
        if not self.has_exact_loss:
            raise ParameterError(
                f"the exact loss of an Adj-Map with uneven cells is found for at most {MAX_UNEVEN_DOMAIN} points; the "
                f"domain has {self.domain.size}. Its bound is `partition_bound`"
            )
        distances = range(1, t + 1) if self.cells.even_width is None else (t,)
        return max(map(self._loss_at, distances)) * ROUND_UP

    def _loss_at(self, distance: int) -> float:
        """Largest log-ratio, in the first input's own cell, of two rows exactly so far apart."""
        low = self._telling_inputs(distance)
        pairs = ((low, low + distance), (low + distance, low))
        return max(float(self._divergence(x, other).max()) for x, other in pairs)

    def _divergence(self, x: Positions, other: Positions) -> NDArray[np.float64]:
        cell = self.cells.cell_of(x)
        return self.outer.divergence(cell, self.cells.cell_of(other)) + self._inner_divergence(cell, x, other)

    def _telling_inputs(self, distance: int) -> Positions:
        """Lower inputs of the pairs among which the worst is sure to be: near either end of the domain.

        Moving a pair by whole cells changes only the norm of the outer kernel's rows, which is worst at an end.
        """
        lower = np.arange(self.domain.size - distance)
        theta = self.cells.even_width
        if theta is None or len(lower) <= 4 * theta:
            return lower
        return np.concatenate([lower[: 2 * theta], lower[-2 * theta :]])

    def _inner_divergence(
        self, cell: NDArray[np.int64], x: NDArray[np.int64], other: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Divergence inside the drawn cell, where each input is represented by its nearest point."""
        result = np.empty(len(cell))
        starts, widths = self.cells.cell_starts[cell], self.cells.widths[cell]
        centre, other_centre = (np.clip(point - starts, 0, widths - 1) for point in (x, other))
        for inner in self.inner:
            rows = widths == inner.n
            result[rows] = inner.divergence(centre[rows], other_centre[rows])
        return result

    def _draw(self, positions: Positions, *, rng: BitSource) -> Positions:
        own = self.cells.cell_of(positions)
        drawn = draw(own, np.zeros_like(own), (self.outer,), rng=rng)
        return self._draw_inside(drawn, positions, rng=rng)


OrderPreservingMap = GlobalMap | LocalMap | AdjMap
