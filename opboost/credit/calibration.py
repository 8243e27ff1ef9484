"""Calibration of probabilities by Platt's sigmoid and by isotonic regression, scored out of fold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from opboost.arrays import Values
from opboost.credit.evidence import check_events
from opboost.errors import DataError

N_FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """Calibrated probabilities of records, out of fold: each by a calibration that was fitted to other records.

    Attributes
    ----------
    method : str
    probabilities : ndarray of float64, shape (n_rows,)
    brier : float
        Mean squared error of the probabilities.
    """

    method: str
    probabilities: Values
    brier: float


def platt(probabilities: Values, labels: Values) -> tuple[float, float]:
    """Slope and intercept of the sigmoid in log odds; 1 and 0 of calibrated probabilities.

    Raises
    ------
    DataError
        If labels are others than 0 and 1, or all the same.
    """
    check_events(labels)
    fitted = LogisticRegression(C=1e6).fit(_log_odds(probabilities), labels)
    return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])


def calibrations(probabilities: Values, labels: Values, *, seed: int) -> tuple[Calibrated, ...]:
    """The probabilities as they are, by Platt's method and by isotonic regression.

    Raises
    ------
    DataError
        If there are fewer than two records of a label, so that none would be left to fit to.
    """
    check_events(labels)
    rng, fold = np.random.default_rng(seed), np.empty(len(labels), np.int64)
    for label in (0, 1):
        of_label = np.flatnonzero(labels == label)
        if len(of_label) < 2:
            raise DataError(
                "calibrations out of fold need at least 2 records of each label; found 1. Nothing was computed"
            )
        fold[rng.permutation(of_label)] = np.arange(len(of_label)) % N_FOLDS
    by_platt, by_steps = np.empty((2, len(labels)))
    for k in np.unique(fold):
        here, there = fold == k, fold != k
        sigmoid = LogisticRegression(C=1e6).fit(_log_odds(probabilities[there]), labels[there])
        steps = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(probabilities[there], labels[there])
        by_platt[here] = sigmoid.predict_proba(_log_odds(probabilities[here]))[:, 1]
        by_steps[here] = steps.predict(probabilities[here])
    found = (("as they are", probabilities), ("Platt", by_platt), ("isotonic", by_steps))
    return tuple(Calibrated(method, p, float(np.mean((p - labels) ** 2))) for method, p in found)


def _log_odds(probabilities: Values) -> Values:
    return np.asarray(logit(np.clip(probabilities, 1e-9, 1 - 1e-9)))[:, None]
