"""Points of scores, and additive scorecards on weights of evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from opboost.arrays import Values
from opboost.credit.evidence import Characteristic, check_events
from opboost.errors import ParameterError


@dataclass(frozen=True, slots=True)
class PointScale:
    """How many points odds are.

    Attributes
    ----------
    points_to_double : float
        Points that double the odds of a non-event (PDO).
    points, odds : float
        So many points are these odds of non-events to events, such as 600 points for 50 to 1.
    """

    points_to_double: float = 20.0
    points: float = 600.0
    odds: float = 50.0

    def __post_init__(self) -> None:
        if not (0 < self.points_to_double < math.inf and 0 < self.odds < math.inf and math.isfinite(self.points)):
            raise ParameterError("points that double the odds, and odds, must be greater than 0 and finite")

    @property
    def factor(self) -> float:
        """Points per unit of log odds."""
        return self.points_to_double / math.log(2)

    @property
    def offset(self) -> float:
        """Points of even odds."""
        return self.points - self.factor * math.log(self.odds)

    def of_probabilities(self, events: Values) -> Values:
        """Points of predicted probabilities of the event."""
        p = np.clip(events, 1e-12, 1 - 1e-12)
        return self.offset + self.factor * np.log((1 - p) / p)

    def probabilities(self, points: Values) -> Values:
        """Probabilities of the event that these points stand for."""
        return 1 / (1 + np.exp((points - self.offset) / self.factor))


@dataclass(frozen=True, slots=True, eq=False)
class Scorecard:
    """Points per bin of some columns, which add up to a record's points.

    Attributes
    ----------
    scale : PointScale
    characteristics : tuple of Characteristic
    coefficients : ndarray of float64, shape (n_characteristics,)
        Of the log odds of a non-event, on weights of evidence: near 1 each if columns were independent.
    intercept : float
    """

    scale: PointScale
    characteristics: tuple[Characteristic, ...]
    coefficients: Values
    intercept: float

    @classmethod
    def fit(
        cls, characteristics: Sequence[Characteristic], labels: Values, scale: PointScale | None = None
    ) -> Scorecard:
        """Fit a logistic regression on the weights of evidence; a noised column counts with its expected weight.

        Raises
        ------
        DataError, ParameterError
        """
        check_events(labels)
        if not characteristics:
            raise ParameterError("a scorecard needs a column; there is none. Nothing was computed")
        matrix = np.column_stack([one.of_records for one in characteristics])
        fitted = LogisticRegression(C=1e6, max_iter=1000).fit(matrix, labels == 0)
        return cls(scale or PointScale(), tuple(characteristics), fitted.coef_[0], float(fitted.intercept_[0]))

    @property
    def points(self) -> tuple[Values, ...]:
        """Points of each bin, by characteristic."""
        share = self.scale.offset / len(self.characteristics)
        base = self.scale.factor * self.intercept / len(self.characteristics) + share
        parts = zip(self.characteristics, self.coefficients, strict=True)
        return tuple(base + self.scale.factor * slope * one.weights for one, slope in parts)

    def scores(self) -> Values:
        """Points of the records that the characteristics were made of, shape ``(n_rows,)``."""
        parts = zip(self.characteristics, self.points, strict=True)
        return np.sum([(one.cells @ points)[one.places] for one, points in parts], axis=0)
