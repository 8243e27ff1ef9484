"""Labels under differential privacy: the mechanism that noises them, and what split tests tell of those without noise.

Trees that are grown on noised labels are post-processing of these, and so is everything that a passive party sees of
them (label differential privacy: Chaudhuri and Hsu 2011; randomised response of labels: Ghazi et al. 2021).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from opboost.arrays import Values
from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn, encode
from opboost.schema import ColumnSchema, Kind
from opboost.trees.losses import AbsoluteError, Logistic, Loss, Ordinal, PseudoHuber, Softmax, SquaredError

# Points on which labels that are numbers are noised.
LABEL_POINTS = 1001


def label_mechanism(name: str, loss: Loss, epsilon: float, bounds: tuple[float, float] | None) -> ColumnMechanism:
    """The mechanism for labels: randomised response for classes, discrete Laplace on clipped numbers, clamped.

    Parameters
    ----------
    name : str
        The label column's.
    loss : Loss
    epsilon : float
        Between any two labels.
    bounds : tuple of float, optional
        Public bounds, for numbers; none for classes.

    Raises
    ------
    ParameterError
        If the objective has neither kind of labels, or the bounds do not go with them.

    Notes
    -----
    Privacy: epsilon-label-DP per record. Of `LABEL_POINTS` points, neighbouring ones lose ``epsilon / 1000``.
    """
    match loss:
        case Logistic() | Softmax() | Ordinal():
            n_classes = {Logistic: 2, Softmax: loss.n_outputs, Ordinal: loss.n_outputs + 1}[type(loss)]
            schema = ColumnSchema(name=name, kind=Kind.UNORDERED, categories=tuple(map(str, range(n_classes))))
            settings = MechanismSettings(category_epsilon=epsilon)
        case SquaredError() | AbsoluteError() | PseudoHuber() if bounds is not None:
            schema = ColumnSchema(name=name, lower=bounds[0], upper=bounds[1])
            settings = MechanismSettings(epsilon=epsilon / (LABEL_POINTS - 1), domain_size=LABEL_POINTS)
        case _:
            raise ParameterError(
                "label_epsilon goes with classes, and with squared, absolute and Pseudo-Huber error if label_bounds "
                f"are given; found {loss.name} without bounds, or another objective. Nothing was released"
            )
    if bounds is not None and schema.kind is Kind.UNORDERED:
        raise ParameterError("label_bounds are for labels that are numbers; classes have none. Nothing was released")
    return ColumnMechanism(schema, settings)


def encode_labels(mechanism: ColumnMechanism, labels: Values) -> EncodedColumn:
    """Exact codes of labels, which must not leave their owner."""
    schema = mechanism.schema
    cells = pd.Series(labels)
    if schema.kind is Kind.UNORDERED:
        cells = cells.astype(int).astype(str).astype(object)
    return encode(cells, schema, domain=mechanism.settings.domain)


def decode_labels(mechanism: ColumnMechanism, released: ReleasedColumn) -> Values:
    """Noised labels in the labels' own unit."""
    if mechanism.schema.kind is Kind.UNORDERED:
        return released.codes.astype(np.float64)
    points = (released.codes - mechanism.settings.domain.lo).astype(np.float64)
    return np.asarray(mechanism.schema.bounds[0] + points * mechanism.point)


def bits_of_tests(n_possible: int, n_asked: int) -> float:
    """Bits that a choice of so many tests among the possible ones, and their number, can tell at most."""
    left = max(0, n_possible - n_asked)
    choices = math.lgamma(n_asked + left + 1) - math.lgamma(n_asked + 1) - math.lgamma(left + 1)
    return (choices + math.log(n_possible + 1)) / math.log(2)


def most_guessed(bits: float, n_rows: int) -> float:
    """Largest mean share of labels that so many bits let anybody guess, of labels that are 0 or 1 with equal chance.

    Fano's inequality, record by record: what is told of `n_rows` labels in all leaves an entropy of
    ``1 - bits / n_rows`` each on average, and the binary entropy is concave.
    """
    entropy = max(0.0, 1.0 - bits / n_rows)
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _binary_entropy(middle) < entropy else (low, middle)
    return 1.0 - high


def _binary_entropy(share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)
