"""Step 2, order-preserving mechanisms of OpBoost (VLDB 2023, section 4); Adj-Map has its own module.

Distances are counted in points of the mapped domain. A map is ``epsilon``-dLDP when for all inputs x, x' at distance
t and all outputs y, ``P[x, y] <= exp(t * epsilon) * P[x', y]``; over the whole domain that is ``(n - 1) * epsilon``,
a weaker promise than epsilon-LDP with the same number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Codes, Positions
from opboost.errors import ParameterError
from opboost.privacy.domain import IntegerDomain, Partition
from opboost.privacy.laws import Kernel, Law, check_epsilon, kernel
from opboost.privacy.sampling import draw
from opboost.rng import BitSource

# Values that are randomised at a time: bounds the memory beyond input and output.
CHUNK_VALUES = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class _Map:
    """Base of the three mechanisms: domain, budget, noise distribution, and drawing in chunks."""

    name: ClassVar[str]
    epsilon: float
    domain: IntegerDomain
    law: Law = Law.CLAMPED

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        try:
            object.__setattr__(self, "law", Law(self.law))
        except ValueError:
            raise ParameterError(f"law must be one of {', '.join(Law)}; got {self.law!r}") from None

    def randomise(self, codes: Codes, *, rng: BitSource) -> Codes:
        """Draw one released code per code, shape ``(n_values,)``, from exactly the map's distribution.

        With ``epsilon=inf`` the codes come back unchanged.

        Raises
        ------
        ParameterError
            If a code lies outside the domain; nothing is drawn then.
        """
        positions = self.domain.positions(codes)
        if math.isinf(self.epsilon):
            return positions + self.domain.lo
        for begin in range(0, len(positions), CHUNK_VALUES):
            chunk = positions[begin : begin + CHUNK_VALUES]
            chunk[:] = self._draw(chunk, rng=rng)
        positions += self.domain.lo
        return positions

    def _draw(self, positions: Positions, *, rng: BitSource) -> Positions:
        raise AssertionError("every map draws in its own way")


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalMap(_Map):
    """Global-Map: noise on the whole domain.

    Parameters
    ----------
    epsilon : float
        Budget per unit of distance, positive; ``inf`` for no noise.
    domain : IntegerDomain
    law : Law or str
        See `opboost.privacy.laws`.

    Notes
    -----
    Privacy: ``law.promise * epsilon``-dLDP, and `loss` gives the exact curve.

    Examples
    --------
    >>> from opboost import GlobalMap, IntegerDomain
    >>> GlobalMap(epsilon=0.1, domain=IntegerDomain(1, 100)).loss(5)
    0.5...
    """

    name: ClassVar[str] = "global"
    kernel: Kernel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _Map.__post_init__(self)
        object.__setattr__(self, "kernel", kernel(self.law, self.domain.size, self.epsilon))

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(n, n)``."""
        return self.kernel.log_probabilities()

    def loss(self, t: int) -> float:
        """Exact loss between inputs at distance at most `t`."""
        return self.kernel.loss(t)

    def _draw(self, positions: Positions, *, rng: BitSource) -> Positions:
        return draw(positions, np.zeros_like(positions), (self.kernel,), rng=rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedMap(_Map):
    """Base of the mechanisms that divide the domain into cells, of equal width `theta` or with given edges."""

    theta: int | None = None
    partition: Partition | None = None
    cells: Partition = field(init=False, repr=False, compare=False)
    inner: tuple[Kernel, ...] = field(init=False, repr=False, compare=False)
    inner_of_width: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _Map.__post_init__(self)
        if (self.theta is None) == (self.partition is None):
            raise ParameterError(f"{type(self).__name__} needs either theta or a partition, and not both")
        if self.partition is None:
            assert self.theta is not None
            cells = Partition.of_width(self.domain, self.theta)
        else:
            cells = self.partition
        if cells.domain != self.domain:
            raise ParameterError(f"the partition divides {cells.domain}, not the map's {self.domain}")
        object.__setattr__(self, "cells", cells)

    def _set_inner(self, epsilon: float) -> None:
        """One kernel per distinct width, and which of them a width uses."""
        widths = np.unique(self.cells.widths)
        inner_of_width = np.zeros(int(widths[-1]) + 1, dtype=np.int64)
        inner_of_width[widths] = np.arange(len(widths))
        object.__setattr__(self, "inner", tuple(kernel(self.law, int(width), epsilon) for width in widths))
        object.__setattr__(self, "inner_of_width", inner_of_width)

    def _draw_inside(self, cells: Positions, positions: Positions, *, rng: BitSource) -> Positions:
        """Draw inside the given cells, centred on each position or on the cell's edge nearest to it."""
        starts, widths = self.cells.extents(cells)
        centres = np.minimum(np.maximum(positions - starts, 0), widths - 1)
        which = np.zeros_like(cells) if len(self.inner) == 1 else self.inner_of_width[widths]
        return starts + draw(centres, which, self.inner, rng=rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMap(PartitionedMap):
    """Local-Map: noise inside the input's own cell, whose index is published exactly.

    Parameters
    ----------
    epsilon : float
        Budget per unit of distance inside a cell (eps_ner in the paper).
    domain : IntegerDomain
    law : Law or str
    theta : int, optional
        Width of the cells; or give `partition`.
    partition : Partition, optional

    Notes
    -----
    Privacy: ``law.promise * epsilon``-dLDP between inputs of one cell; **no protection across borders**, so
    `loss` is infinite as soon as there are two cells.
    """

    name: ClassVar[str] = "local"

    def __post_init__(self) -> None:
        PartitionedMap.__post_init__(self)
        self._set_inner(self.epsilon)

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(n, n)``; minus infinity outside the input's cell."""
        table = np.full((self.domain.size, self.domain.size), -np.inf)
        for start, width in zip(self.cells.cell_starts, self.cells.widths, strict=True):
            inside = slice(start, start + width)
            table[inside, inside] = self.inner[self.inner_of_width[width]].log_probabilities()
        return table

    def loss(self, t: int) -> float:
        """Exact loss between inputs at distance at most `t`, wherever they lie."""
        if t >= 1 and self.cells.n_cells > 1:
            return math.inf
        return self.loss_within(t)

    def loss_within(self, t: int) -> float:
        """Exact loss between inputs at distance at most `t` that share a cell."""
        return max(inner.loss(t) for inner in self.inner)

    def _draw(self, positions: Positions, *, rng: BitSource) -> Positions:
        return self._draw_inside(self.cells.cell_of(positions), positions, rng=rng)
