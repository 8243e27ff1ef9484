"""Step 2, desensitization of a whole column: its mechanism, its privacy guarantee, and the draw.

Numbers and ordered categories go through an order-preserving map, unordered categories through randomised response.
Where missingness is a state of its own, a bit that says "missing" is randomised too, and the value is published only
if the bit that comes out says that there is one; a missing cell's value is drawn from a public code. Two records that
differ in missingness therefore lose the bit's epsilon plus the loss between their codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from opboost.arrays import KeptCodes, Mask
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import QUOTIENT_ROUNDING, EncodedColumn, points_within
from opboost.privacy.adj_map import AdjMap, OrderPreservingMap
from opboost.privacy.guarantee import ColumnGuarantee
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import LocalMap
from opboost.rng import BitSource
from opboost.schema import ColumnSchema, Kind, Missing

# Rows of a column that are drawn before the next ones are looked at.
PIECE_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class ColumnMechanism:
    """A column's schema with its mechanism, and the mechanism of its missingness.

    Attributes
    ----------
    schema : ColumnSchema
    settings : MechanismSettings
    value : OrderPreservingMap or RandomisedResponse
        For the value.
    missingness : RandomisedResponse or None
        For the bit "this cell is empty"; None if no cell can be.
    """

    schema: ColumnSchema
    settings: MechanismSettings
    value: OrderPreservingMap | RandomisedResponse = field(init=False)
    missingness: RandomisedResponse | None = field(init=False)

    def __post_init__(self) -> None:
        n_categories = len(self.schema.categories)
        if self.schema.kind is Kind.ORDERED and n_categories > self.settings.domain_size:
            raise ParameterError(
                f"column {self.schema.name!r} has {n_categories} ordered categories, more than the "
                f"{self.settings.domain_size} points of its domain; raise domain_size"
            )
        is_unordered = self.schema.kind is Kind.UNORDERED
        value = self.settings.for_categories(n_categories) if is_unordered else self.settings.build()
        if isinstance(value, LocalMap) and int(value.cells.widths.max()) == 1:
            raise ParameterError(
                f"column {self.schema.name!r}: a Local-Map with cells of one point would publish every value exactly; "
                "theta must be at least 2"
            )
        object.__setattr__(self, "value", value)
        has_state = self.schema.missing is Missing.CATEGORY
        object.__setattr__(self, "missingness", self.settings.for_categories(2) if has_state else None)

    @property
    def point(self) -> float:
        """Width of one point of the mapped domain in the column's own unit; 0 for unordered categories."""
        lower, upper = self.schema.bounds
        is_map = not isinstance(self.value, RandomisedResponse)
        return (upper - lower) / (self.settings.domain_size - 1) if is_map else 0.0

    @property
    def keep(self) -> float | None:
        """Probability that an unordered category is published as it is; None for other columns."""
        if not isinstance(self.value, RandomisedResponse):
            return None
        return self.value.keep * (1.0 if self.missingness is None else self.missingness.keep)

    @property
    def unit(self) -> float:
        """Unit of distance of the guarantee: the column's own step, or a point where none is known."""
        return self.schema.own_step or self.point

    def points(self, difference: float) -> int:
        """Largest distance in points of the mapped domain of two values with this difference in the column's unit."""
        return points_within(difference, self.point)

    def loss(self, points: int) -> float:
        """Exact loss between values at most so many points apart; for a Local-Map, of one cell.

        The bound of an Adj-Map on so many points that its exact curve is out of reach.

        Raises
        ------
        ParameterError
            If it is not a finite number although there is noise.
        """
        value = self.value
        # What no double holds comes out as infinite.
        with np.errstate(over="ignore"):
            if isinstance(value, LocalMap):
                loss = value.loss_within(points)
            elif isinstance(value, AdjMap) and not value.has_exact_loss:
                loss = value.partition_bound(points)
            else:
                loss = value.loss(points)
        if not (loss >= 0 and (math.isfinite(loss) or math.isinf(value.epsilon))):
            raise ParameterError(
                f"column {self.schema.name!r}: the loss between values {points} points apart comes out as {loss}, "
                "which is no promise. Nothing was drawn"
            )
        return loss

    def guarantee(self) -> ColumnGuarantee:
        """The privacy guarantee of this column.

        Raises
        ------
        ParameterError
            If there is none: a loss is not a number, or no cell of a Local-Map holds two values of the column.
        """
        missing_epsilon = self.missingness.epsilon if self.missingness is not None else 0.0
        if isinstance(self.value, RandomisedResponse):
            return ColumnGuarantee(
                column=self.schema.name,
                mechanism=self.value.name,
                law="",
                epsilon=self.value.epsilon,
                unit=self.unit_in_words,
                domain_loss=self.value.epsilon,
                missing_epsilon=missing_epsilon,
                parameters={"epsilon": self.value.epsilon, "n_categories": self.value.n_categories},
            )
        parameters = {"epsilon": self.value.epsilon, "domain_size": float(self.value.domain.size)}
        if isinstance(self.value, (LocalMap, AdjMap)) and self.value.theta is not None:
            parameters["theta"] = float(self.value.theta)
        if isinstance(self.value, AdjMap):
            parameters["alpha"] = self.value.alpha
        points, cells = self.points(self.unit), self.value.cells if isinstance(self.value, LocalMap) else None
        is_open = cells is not None and cells.n_cells > 1
        apart = math.floor(self.unit / self.point * (1 + QUOTIENT_ROUNDING))
        if cells is not None and int(cells.widths.max()) <= apart:
            raise ParameterError(
                f"column {self.schema.name!r}: neighbouring values are {apart} points apart, so a Local-Map with cells "
                f"of {cells.widths.max()} publishes every value exactly; theta must be at least {apart + 1}, or the "
                "schema name a smaller `step`. Nothing was drawn"
            )
        return ColumnGuarantee(
            column=self.schema.name,
            mechanism=self.value.name,
            law=self.value.law.value,
            epsilon=self.loss(points),
            unit=self.unit_in_words
            + (f", {points} points of the mapped domain" if points > 1 else "")
            + (", inside a cell" if cells is not None else ""),
            domain_loss=math.inf if is_open else self.loss(self.value.domain.size - 1),
            missing_epsilon=missing_epsilon,
            parameters=parameters,
            points=points,
            n_cells=cells.n_cells if cells is not None else 0,
            narrowest_cell=int(cells.widths.min()) if cells is not None else 0,
        )

    @property
    def unit_in_words(self) -> str:
        """The `unit` in words."""
        if isinstance(self.value, RandomisedResponse):
            return "any change of category"
        if self.schema.kind is Kind.ORDERED:
            return "one category"
        words = "1 original unit" if self.unit == 1 else f"{self.unit:.6g} original units"
        return words if self.schema.own_step else f"{words}, one point of the mapped domain"


@dataclass(frozen=True, slots=True)
class ReleasedColumn:
    """A released column: codes and missing cells (or, from `exact`, a column without noise, for its owner alone).

    Attributes
    ----------
    schema : ColumnSchema
    codes : ndarray of signed integers, shape (n_rows,)
    is_missing : ndarray of bool, shape (n_rows,)
        Rows published as missing; their code means nothing and is 0.
    """

    schema: ColumnSchema
    codes: KeptCodes
    is_missing: Mask

    @classmethod
    def of_marked(cls, schema: ColumnSchema, marked: KeptCodes) -> Self:
        """The column given as one array, in which a missing cell is -1."""
        is_missing = marked < 0
        return cls(schema, np.where(is_missing, 0, marked) if is_missing.any() else marked, is_missing)

    @property
    def marked(self) -> KeptCodes:
        """The inverse of `of_marked`."""
        return np.where(self.is_missing, -1, self.codes) if self.is_missing.any() else self.codes


def desensitize(mechanism: ColumnMechanism, encoded: EncodedColumn, *, rng: BitSource) -> ReleasedColumn:
    """Randomise one column with its mechanism, `PIECE_ROWS` rows at a time.

    A column that is given in pieces of so many rows, one call after the other, comes out the same from one source.

    Notes
    -----
    Privacy: the promise is ``mechanism.guarantee()``; every call is a new release and costs anew.
    """
    n_rows, is_category = len(encoded.codes), isinstance(mechanism.value, RandomisedResponse)
    highest = len(mechanism.schema.categories) if is_category else mechanism.settings.domain.hi
    # Codes that were given in a small type come out in one that holds them and, where it is needed, -1 for missing.
    kind = np.result_type(encoded.codes.dtype, np.min_scalar_type(-1 - highest))
    codes, is_missing = np.empty(n_rows, kind), np.zeros(n_rows, np.bool_)
    for start in range(0, n_rows, PIECE_ROWS):
        piece = slice(start, start + PIECE_ROWS)
        codes[piece] = mechanism.value.randomise(encoded.codes[piece].astype(np.int64), rng=rng)
        if mechanism.missingness is not None:
            bit = mechanism.missingness.randomise(encoded.is_missing[piece].astype(np.int64), rng=rng)
            is_missing[piece] = bit.astype(np.bool_)
    codes[is_missing] = 0
    return ReleasedColumn(mechanism.schema, codes, is_missing)


def exact(mechanism: ColumnMechanism, encoded: EncodedColumn) -> ReleasedColumn:
    """Encode the column without noise, for split tests that its owner evaluates itself."""
    return ReleasedColumn(mechanism.schema, np.where(encoded.is_missing, 0, encoded.codes), encoded.is_missing)
